// One client connection: reads request heads, asks the router, and carries one exchange after another.
import type { Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { type Answer, answer, renderAnswer } from "./answer.ts";
import { BodyScanner } from "./body-scanner.ts";
import type { Front } from "./front.ts";
import { INCOMPLETE, REFUSED } from "./head-lines.ts";
import { Opening } from "./opening.ts";
import { EXPECT, type RequestHead } from "./request-head.ts";
import type { Target, Trouble } from "./target.ts";
import type { Upstream, UpstreamClient } from "./upstream.ts";
import { BEHIND, HELD, Wire, type WireOwner } from "./wire.ts";

/**
 * head ─▶ body ─▶ waiting ─▶ head     a request's head, its body, the rest of its response
 *   └──▶ discard ─▶ head              answered here; its body is thrown away
 * body|waiting ─▶ tunnel              after 101
 * any ─▶ linger                       the last answer was sent; what still arrives is thrown away
 */
type State = "head" | "body" | "waiting" | "tunnel" | "discard" | "linger";

export class ClientConnection implements WireOwner, UpstreamClient {
  readonly wire: Wire;
  /** What upstreams are told of the client: header lines. */
  readonly forwarded: string;
  upstream: Upstream | undefined;
  isHead = false;
  isHttp10 = false;
  wantsUpgrade = false;
  keepAlive = true;
  /** When the current wait began: for a request, for the rest of a head, or for the peer to close. */
  since: number;
  readonly #front: Front;
  readonly #body = new BodyScanner();
  #state: State = "head";
  /** An unfinished head, or requests sent before their turn. */
  #held: Buffer | undefined;
  #target: Target | undefined;
  readonly #opening = new Opening();
  #mayRepeat = false;
  #status = 0;
  #kind = -1;
  #startedAt = 0;
  #discarded = 0;

  constructor(front: Front, accepted: Socket, now: number) {
    this.#front = front;
    this.since = now;
    this.wire = Wire.adopt(this, accepted);
    const peer = (this.wire.socket.remoteAddress ?? "unknown").replace(/^::ffff:(?=\d+\.)/, "");
    this.forwarded = `x-forwarded-for: ${peer}\r\nx-forwarded-proto: http\r\n`;
  }

  get isIdle(): boolean {
    return this.#state === "head" && this.#held === undefined;
  }

  onBytes(bytes: Buffer, length: number) {
    this.#front.bytesIn += length;
    switch (this.#state) {
      case "head":
        return this.#readHead(bytes, 0, length);
      case "body":
        return this.#passBody(bytes, 0, length);
      case "waiting":
        return this.#hold(bytes, 0, length);
      case "tunnel":
        return this.upstream?.wire.forward(bytes, 0, length, this.wire);
      case "discard":
        return this.#discard(bytes, 0, length);
      default:
        return;
    }
  }

  #readHead(bytes: Buffer, start: number, end: number) {
    const { head, limits } = this.#front;
    const isFirstPart = this.#held === undefined;
    if (this.#held !== undefined) {
      bytes = Buffer.concat([this.#held, bytes.subarray(start, end)]);
      this.#held = undefined;
      start = 0;
      end = bytes.length;
    }
    const bodyAt = head.parse(bytes, start, Math.min(end, start + limits.headBytes));
    if (bodyAt === REFUSED) return this.#refuse(head.problemStatus, `The request is malformed: ${head.problem}`);
    if (bodyAt !== INCOMPLETE) return this.#begin(head, bytes, bodyAt, end);
    if (end - start >= limits.headBytes) return this.#refuse(431, `The request head is larger than ${limits.headBytes} bytes`);
    if (isFirstPart) this.since = performance.now();
    this.#held = Buffer.from(bytes.subarray(start, end));
  }

  #begin(head: RequestHead, bytes: Buffer, at: number, end: number) {
    this.#startedAt = performance.now();
    this.isHead = head.isHead;
    this.isHttp10 = head.isHttp10;
    this.keepAlive = head.keepsAlive && !this.#front.draining;
    this.#status = 0;
    this.#kind = -1;
    const { bodyBytes } = head;
    this.#body.start(bodyBytes);
    const decision = this.#front.route(head, this);
    if (!("target" in decision)) {
      if (head.has(EXPECT) || bodyBytes > this.#front.limits.discardBytes) this.keepAlive = false;
      return this.#answer(decision, bytes, at, end);
    }
    const { target, text } = decision;
    this.#kind = decision.kind;
    this.#target = target;
    this.wantsUpgrade = decision.upgrade && head.upgrades;
    let bodyEnd = at;
    if (bodyBytes !== 0) {
      bodyEnd = this.#body.scan(bytes, at, end);
      if (bodyEnd < 0) return this.#refuse(400, "The request is malformed: its chunk framing is invalid");
    }
    this.#opening.set(text, bytes, at, bodyEnd);
    const complete = this.#body.done;
    this.#state = complete ? "waiting" : "body";
    if (end > bodyEnd) this.#hold(bytes, bodyEnd, end);
    const kept = target.takeIdle();
    this.#mayRepeat = kept !== undefined && complete && this.#opening.isSmall && head.isRepeatable;
    if (kept === undefined) return this.#dial(target);
    this.upstream = kept;
    this.#opening.send(this, kept);
  }

  #dial(target: Target): void {
    this.wire.pause(HELD);
    this.upstream = target.dial(this);
  }

  onReady(upstream: Upstream): void {
    this.#opening.send(this, upstream);
    this.wire.resume(HELD);
  }

  #passBody(bytes: Buffer, start: number, end: number) {
    const bodyEnd = this.#body.scan(bytes, start, end);
    if (bodyEnd < 0) {
      this.upstream?.destroy();
      this.upstream = undefined;
      if (this.#status !== 0) return this.wire.reset();
      return this.#refuse(400, "The request is malformed: its chunk framing is invalid");
    }
    this.upstream?.wire.forward(bytes, start, bodyEnd, this.wire);
    if (!this.#body.done) return;
    this.#state = "waiting";
    this.wire.settle();
    if (bodyEnd < end) this.#hold(bytes, bodyEnd, end);
  }

  /** Requests sent before their turn wait here; past the bound the connection is not read. */
  #hold(bytes: Buffer, start: number, end: number): void {
    const piece = bytes.subarray(start, end);
    this.#held = this.#held === undefined ? Buffer.from(piece) : Buffer.concat([this.#held, piece]);
    if (this.#held.length >= this.#front.limits.headBytes) this.wire.pause(HELD);
  }

  onResponseHead(status: number): void {
    this.#status = status;
    this.#opening.forget();
    this.#mayRepeat = false;
    if (this.#front.draining) this.keepAlive = false;
  }

  onResponseEnd(upstream: Upstream, reusable: boolean): void {
    const now = performance.now();
    this.upstream = undefined;
    this.#front.observe(this.#kind, this.#status, now - this.#startedAt);
    this.#kind = -1;
    const bodyDone = this.#body.done;
    if (reusable && bodyDone) upstream.release(now);
    else upstream.destroy();
    if (bodyDone && this.keepAlive) this.#next(now);
    else this.#linger();
  }

  /** Ready for the next request, which may have come already. */
  #next(now: number): void {
    if (this.#front.draining) {
      this.#linger();
      return;
    }
    this.#state = "head";
    this.since = now;
    this.wire.resume(BEHIND);
    // A client that sends requests without reading the answers waits until it has read them.
    if (this.wire.isBehind) this.wire.pause(HELD);
    else this.#resumeHeld();
  }

  #resumeHeld(): void {
    this.wire.resume(HELD);
    if (this.#held === undefined) return;
    // Not at once: a long row of requests must not become a deep stack, nor keep other connections waiting.
    setImmediate(() => {
      const held = this.#held;
      if (this.#state !== "head" || held === undefined || this.wire.closed) return;
      this.#held = undefined;
      this.#readHead(held, 0, held.length);
    });
  }

  onTunnel(): void {
    this.#state = "tunnel";
    const held = this.#held;
    this.#held = undefined;
    this.wire.resume(HELD);
    if (held !== undefined) this.upstream?.wire.forward(held, 0, held.length, this.wire);
  }

  onTunnelEnd(): void {
    this.upstream = undefined;
    this.wire.end();
  }

  onTrouble(trouble: Trouble, detail: string) {
    this.upstream = undefined;
    const target = this.#target as Target;
    // What the client has is not the whole, and it must notice.
    if (this.#status !== 0) return this.wire.reset();
    if (trouble === "closed" && this.#mayRepeat) {
      this.#mayRepeat = false;
      return this.#dial(target);
    }
    this.#opening.forget();
    this.wire.resume(BEHIND);
    this.wire.resume(HELD);
    this.#answer(target.policy.answerFor(trouble, detail));
  }

  /** Refusals of what cannot be read further: the connection ends with them. */
  #refuse(status: number, message: string): void {
    this.keepAlive = false;
    this.#held = undefined;
    this.#answer(answer(status, message));
  }

  #answer(given: Answer, bytes?: Buffer, at = 0, end = 0) {
    if (this.#front.draining) this.keepAlive = false;
    this.wire.write(renderAnswer(given, this.keepAlive, this.isHead));
    this.#front.observe(this.#kind, given.status, this.#startedAt === 0 ? 0 : performance.now() - this.#startedAt);
    this.#kind = -1;
    if (!this.keepAlive) return this.#linger();
    this.#state = "discard";
    this.#discarded = 0;
    if (bytes !== undefined) this.#discard(bytes, at, end);
    else if (this.#body.done) this.#next(performance.now());
  }

  #discard(bytes: Buffer, start: number, end: number) {
    const bodyEnd = this.#body.scan(bytes, start, end);
    this.#discarded += bodyEnd - start;
    if (bodyEnd < 0 || this.#discarded > this.#front.limits.discardBytes) return this.#linger();
    if (!this.#body.done) return;
    if (bodyEnd < end) this.#hold(bytes, bodyEnd, end);
    this.#next(performance.now());
  }

  #linger(): void {
    this.#state = "linger";
    this.#held = undefined;
    this.since = performance.now();
    this.wire.end();
    this.wire.resume(BEHIND);
    this.wire.resume(HELD);
  }

  /** Called about once a second: ends waits that have lasted too long. */
  sweep(now: number): void {
    const { limits } = this.#front;
    const waited = now - this.since;
    if (this.#state === "linger" && waited > limits.lingerMs) this.wire.destroy();
    else if (this.#state === "head" && this.#held !== undefined && waited > limits.headMs)
      this.#refuse(408, `The request head was not complete within ${limits.headMs} ms`);
    else if (this.isIdle && waited > limits.idleMs) this.wire.destroy();
  }

  onEnd(): void {
    if (this.#state === "tunnel") this.upstream?.wire.end();
    else if (this.#state === "head" || this.#state === "discard") this.wire.end();
    else this.wire.destroy();
  }

  onClose(error: NodeJS.ErrnoException | undefined): void {
    if (this.#kind >= 0) this.#front.observe(this.#kind, this.#status, performance.now() - this.#startedAt);
    if (error === undefined && this.#state === "tunnel") this.upstream?.abandon();
    else this.upstream?.destroy();
    this.upstream = undefined;
    this.#held = undefined;
    this.#opening.forget();
    this.#front.forget(this);
  }

  onDrain(): void {
    this.upstream?.wire.resume(BEHIND);
    if (this.#state === "head" && this.wire.isPaused(HELD)) this.#resumeHeld();
  }
}
