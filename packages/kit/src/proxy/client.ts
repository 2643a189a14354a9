// One client connection: asks the router about each request, and carries one exchange after another.
import { performance } from "node:perf_hooks";
import { ByteBuffer } from "../byte-buffer.ts";
import type { Answer } from "./answer.ts";
import { ClientReader } from "./client-reader.ts";
import type { Wait } from "./decision.ts";
import { Opening } from "./opening.ts";
import { EXPECT, type RequestHead } from "./request-head.ts";
import type { Target } from "./target.ts";
import type { Trouble, Upstream, UpstreamClient } from "./upstream.ts";
import { BEHIND, HELD } from "./wire.ts";

/** Bound on how often a request is forwarded after its target answers that the sandbox has moved. */
const MAX_MOVES = 4;

export class ClientConnection extends ClientReader implements UpstreamClient {
  upstream: Upstream | undefined;
  wantsUpgrade = false;
  addedLines = "";
  #target: Target | undefined;
  readonly #opening = new Opening();
  /** The original request, as long as no byte of it was sent upstream: until then it can be put back. */
  #unsent: Buffer | undefined;
  #mayRepeat = false;
  /** True if the client may be waiting for 100 Continue before it sends its body. */
  #expects = false;
  /** True if the response's framing shows where it ends. */
  #framed = false;
  #wait: Wait | undefined;
  /** The answer to a request that was put back, which replaces routing. */
  #verdict: Answer | undefined;

  onBytes(bytes: Buffer, length: number) {
    this.front.bytesIn += length;
    switch (this.state) {
      case "head":
        return this.readHead(bytes, 0, length);
      case "body":
        return this.#passBody(bytes, 0, length);
      case "waiting":
      case "asleep":
        return this.addPending(bytes, 0, length);
      case "tunnel":
        return this.upstream?.wire.forward(bytes, 0, length, this.wire);
      case "discard":
        return this.discard(bytes, 0, length);
      default:
        return;
    }
  }

  protected begin(head: RequestHead, bytes: Buffer, start: number, at: number, end: number) {
    if (this.rounds === 0) this.startedAt = performance.now();
    this.isHead = head.isHead;
    this.isHttp10 = head.isHttp10;
    this.keepAlive = head.keepsAlive && !this.front.draining;
    this.status = 0;
    this.kind = -1;
    const { bodyBytes } = head;
    this.body.start(bodyBytes);
    const decision = this.#verdict ?? this.front.route(head, this);
    if (!("target" in decision)) {
      this.#verdict = undefined;
      if ("leave" in decision) return this.#sleep(decision, bytes, start, end);
      if (head.has(EXPECT) || bodyBytes > this.front.limits.discardBytes) this.keepAlive = false;
      return this.answer(decision, bytes, at, end);
    }
    const { target, text } = decision;
    this.kind = decision.kind;
    this.#target = target;
    this.wantsUpgrade = decision.upgrade && head.upgrades;
    this.addedLines = decision.addedLines ?? "";
    let bodyEnd = at;
    if (bodyBytes !== 0) {
      bodyEnd = this.body.scan(bytes, at, end);
      if (bodyEnd < 0) return this.refuse(400, "The request is malformed: its chunk framing is invalid");
    }
    const complete = this.body.done;
    this.#opening.set(text, bytes, at, bodyEnd, complete);
    this.#expects = !complete && head.has(EXPECT);
    this.state = complete ? "waiting" : "body";
    if (end > bodyEnd) this.addPending(bytes, bodyEnd, end);
    const kept = target.takeIdle();
    this.#mayRepeat = kept !== undefined && this.#opening.isWhole && head.isRepeatable;
    if (kept === undefined) {
      this.#unsent = Buffer.from(bytes.subarray(start, end));
      return this.#dial(target);
    }
    this.upstream = kept;
    this.#opening.send(this, kept);
  }

  #dial(target: Target): void {
    this.wire.pause(HELD);
    this.upstream = target.dial(this);
  }

  /**
   * Says whether the request can be sent to another node: its kept beginning is all of it, and its rewritten form does not depend on how the
   * client's connection ends.
   */
  get canBeMoved(): boolean {
    return this.#opening.isWhole && this.keepAlive && !this.isHttp10 && this.rounds < MAX_MOVES;
  }

  onReady(upstream: Upstream): void {
    this.#unsent = undefined;
    this.#opening.send(this, upstream);
    this.wire.resume(HELD);
  }

  /** Keeps the original request. Bytes after it are read up to the bound, so that a disconnect is noticed. */
  #sleep(wait: Wait, bytes: Buffer, start: number, end: number): void {
    this.#wait = wait;
    this.kind = wait.kind;
    this.rounds++;
    this.state = "asleep";
    this.addPending(bytes, start, end);
  }

  /** Ends the wait: the request is routed again, or answered with `verdict`. */
  proceed(verdict?: Answer): void {
    if (this.state !== "asleep") return;
    this.#wait = undefined;
    this.#verdict = verdict;
    this.#readAgain();
  }

  #putBack(): void {
    this.#opening.forget();
    this.rounds++;
    this.#readAgain();
  }

  #readAgain(): void {
    this.state = "head";
    this.kind = -1;
    this.since = performance.now();
    this.resumePending();
  }

  #passBody(bytes: Buffer, start: number, end: number) {
    const bodyEnd = this.body.scan(bytes, start, end);
    if (bodyEnd < 0) {
      this.upstream?.destroy();
      this.upstream = undefined;
      if (this.status !== 0) return this.wire.reset();
      return this.refuse(400, "The request is malformed: its chunk framing is invalid");
    }
    this.upstream?.wire.forward(bytes, start, bodyEnd, this.wire);
    if (!this.body.done) return;
    this.state = "waiting";
    this.wire.settle();
    if (bodyEnd < end) this.addPending(bytes, bodyEnd, end);
  }

  onResponseHead(status: number, framed: boolean): void {
    this.status = status;
    this.#framed = framed;
    this.#opening.forget();
    this.#mayRepeat = false;
    const { draining, limits } = this.front;
    // The answer came before the body's end: if the rest may never come or is too long to discard, the answer closes the connection.
    if (draining || (!this.body.done && (this.#expects || this.body.missing > limits.discardBytes))) this.keepAlive = false;
  }

  onResponseEnd(upstream: Upstream, reusable: boolean): void {
    const now = performance.now();
    this.upstream = undefined;
    this.front.observe(this.kind, this.status, now - this.startedAt);
    this.kind = -1;
    const bodyDone = this.body.done;
    if (reusable && bodyDone) upstream.release(now);
    else upstream.destroy();
    if (!this.keepAlive) this.linger();
    else if (bodyDone) this.next(now);
    else this.discardRest(now);
  }

  onTunnel(): void {
    this.state = "tunnel";
    const pending = this.pending;
    this.pending = undefined;
    this.wire.resume(HELD);
    if (pending !== undefined) this.upstream?.wire.forward(pending.bytes, 0, pending.length, this.wire);
  }

  onTunnelEnd(): void {
    this.upstream = undefined;
    this.wire.end();
  }

  onTrouble(trouble: Trouble, detail: string) {
    this.upstream = undefined;
    const target = this.#target as Target;
    // The client has only a part and must notice: if the framing does not show it, a reset does. A reset may destroy bytes that the client has
    // not read yet, so it is the second choice.
    if (this.status !== 0) return this.#framed ? this.linger() : this.wire.reset();
    if (trouble === "moved") {
      this.movedFrom = target;
      const sent = this.#opening.bytes;
      const behind = this.pending;
      this.pending = new ByteBuffer(sent, 0, sent.length);
      if (behind !== undefined) this.pending.append(behind.bytes, 0, behind.length);
      return this.#putBack();
    }
    if (trouble === "closed" && this.#mayRepeat) {
      this.#mayRepeat = false;
      return this.#dial(target);
    }
    this.#opening.forget();
    this.wire.resume(BEHIND);
    const unsent = this.#unsent;
    this.#unsent = undefined;
    if (trouble === "dropped" && unsent !== undefined) {
      this.pending = new ByteBuffer(unsent, 0, unsent.length);
      return this.#putBack();
    }
    this.wire.resume(HELD);
    // A client that waits for 100 Continue may take the answer as a refusal, and send its next request in place of the body.
    if (this.#expects && !this.body.done) this.keepAlive = false;
    this.answer(target.policy.answerFor(trouble, detail));
  }

  override sweep(now: number) {
    const wait = this.#wait;
    if (this.state !== "asleep" || wait === undefined) return super.sweep(now);
    if (now - this.startedAt <= this.front.limits.wakeMs) return;
    wait.leave(this);
    this.proceed(wait.tooLate());
  }

  onEnd(): void {
    if (this.state === "tunnel") this.upstream?.wire.end();
    else if ((this.state === "head" && this.rounds === 0) || this.state === "discard") this.wire.end();
    else this.wire.destroy();
  }

  onClose(error: NodeJS.ErrnoException | undefined): void {
    this.#wait?.leave(this);
    this.#wait = undefined;
    if (this.kind >= 0) this.front.observe(this.kind, this.status, performance.now() - this.startedAt);
    if (error === undefined && this.state === "tunnel") this.upstream?.abandon();
    else this.upstream?.destroy();
    this.upstream = undefined;
    this.pending = undefined;
    this.endSlowHead();
    this.#unsent = undefined;
    this.#opening.forget();
    this.front.forget(this);
  }

  onDrain(): void {
    this.upstream?.wire.resume(BEHIND);
    if (this.state === "head" && this.wire.isPaused(HELD)) this.resumePending();
  }
}
