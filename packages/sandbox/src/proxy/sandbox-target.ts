// A port of one sandbox as a target: dialled at its address, or through envd's relay if it listens only on loopback.
import { connect, Socket } from "node:net";
import { ENVD_PORT } from "@svc/contract/envd-http.ts";
import { type Answer, answer } from "@svc/kit/proxy/answer.ts";
import { Pace } from "@svc/kit/proxy/pace.ts";
import type { Target, TargetPolicy } from "@svc/kit/proxy/target.ts";
import type { Trouble, Way } from "@svc/kit/proxy/upstream.ts";
import type { ProxyEntry, SandboxDirectory } from "../records/directory.ts";
import { dialUnix } from "../runtime/dial.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";
import { dialTLS, dialTLSThrough } from "./tls-port.ts";

/** Node's own servers close idle connections after 5 s; ours must close before. */
const applicationIdleMs = 4_000;
/** envd keeps its connections longer than this. */
const envdIdleMs = 30_000;

/** SDKs distinguish a sandbox that is gone from a closed port by exactly this text. */
export function notFound(sandboxID: string): Answer {
  // I45
  return answer(502, "The sandbox was not found", { sandboxId: sandboxID }, { "x-svc-reason": "not_found" });
}

/** The text equals that of `notFound`, after which SDKs ask whether the sandbox is paused; the header informs other clients. */
export function paused(sandboxID: string): Answer {
  return answer(502, "The sandbox was not found", { sandboxId: sandboxID }, { "x-svc-reason": "paused" });
}

/**
 * The text must not match that of a sandbox that is gone, since this one is not. The request is not retried either, since it may have been
 * executed.
 */
function cutOff(sandboxID: string, said: string): Answer {
  return answer(502, said, { sandboxId: sandboxID }, { "x-svc-reason": "cut_off", "Should-Retry": "false" });
}

const MOVES = "The sandbox moves to another node, and this request was not answered before; it may have been carried out";
const WAS_PAUSED = "The sandbox was paused before it answered this request, which may have been carried out";
const PAUSED_WAKING = `${WAS_PAUSED}; if it may run twice, send it again: the next request resumes the sandbox`;
const PAUSED_NO_WAKE = `${WAS_PAUSED}; connect to the sandbox or resume it, and if the request may run twice, send it again`;

function portClosed(sandboxID: string, port: number): Answer {
  return answer(502, "The sandbox is running but port is not open", { sandboxId: sandboxID, port }, { "x-svc-reason": "port_closed" });
}

export class SandboxPort implements TargetPolicy {
  /** The sandbox as the directory last knew it; its tokens and address are read at each dial. */
  entry: ProxyEntry;
  readonly idleMs: number;
  readonly saysMoved = false;
  readonly pace: Pace | undefined;
  readonly #port: number;
  readonly #directory: SandboxDirectory;
  /** Says whether the relay was the last way that worked. */
  #relayFirst = false;

  constructor(entry: ProxyEntry, port: number, directory: SandboxDirectory, pace?: Pace) {
    this.entry = entry;
    this.pace = pace;
    this.#port = port;
    this.#directory = directory;
    this.idleMs = port === ENVD_PORT ? envdIdleMs : applicationIdleMs;
  }

  ways(): readonly Way[] {
    const { endpoint } = this.entry.handle;
    const envd = endpoint.kind === "tcp" ? { host: endpoint.host, port: ENVD_PORT } : (options: object) => dialled(endpoint.path, options);
    if (this.#port === ENVD_PORT) return [{ connect: envd }];
    const preface = `GET /relay?port=${this.#port} HTTP/1.1\r\nHost: envd\r\nConnection: Upgrade\r\nUpgrade: svc-relay\r\nX-Access-Token: ${this.entry.envdAccessToken}\r\n\r\n`;
    if (this.#isTLS) return this.#tlsWays(preface);
    const relay: Way = { connect: envd, preface };
    if (endpoint.kind === "unix") return [relay];
    const direct: Way = { connect: { host: endpoint.host, port: this.#port } };
    return this.#relayFirst ? [relay, direct] : [direct, relay];
  }

  get #isTLS(): boolean {
    return this.entry.httpsPorts.includes(this.#port);
  }

  #tlsWays(preface: string): readonly Way[] {
    const { endpoint } = this.entry.handle;
    const envd = () => (endpoint.kind === "tcp" ? connect({ host: endpoint.host, port: ENVD_PORT, noDelay: true }) : dialled(endpoint.path, {}));
    const relay: Way = { connect: (options) => dialTLSThrough(envd(), preface, options), isRelay: true };
    if (endpoint.kind === "unix") return [relay];
    const direct: Way = { connect: (options) => dialTLS(endpoint.host, this.#port, options) };
    return this.#relayFirst ? [relay, direct] : [direct, relay];
  }

  reached(way: Way): void {
    this.#relayFirst = way.preface !== undefined || way.isRelay === true;
  }

  answerFor(trouble: Trouble, detail: string): Answer {
    const { sandboxID } = this.entry;
    if (trouble === "dropped") return this.#dropped(sandboxID);
    if (this.#directory.find(sandboxID) === undefined) return notFound(sandboxID);
    if (trouble === "refused") return portClosed(sandboxID, this.#port);
    const members = { sandboxId: sandboxID, port: this.#port };
    if (trouble === "unreachable" && this.#isTLS) {
      const said = `The sandbox is running, but the server on port ${this.#port} did not complete a TLS handshake, which network.httpsPorts demands: ${detail}`;
      return answer(502, said, members, { "x-svc-reason": "unreachable" });
    }
    if (trouble === "unreachable") return answer(502, `The sandbox is running but could not be reached: ${detail}`, members, { "x-svc-reason": "unreachable" });
    if (trouble === "malformed") return answer(502, `The response from the sandbox is malformed: ${detail}`, members, { "x-svc-reason": "bad_response" });
    return answer(502, `The sandbox is running but gave no response: ${detail}`, members, { "x-svc-reason": "no_response" });
  }

  /** Answers for a sandbox that moves, was paused, or is gone; SDKs get "not found" only for the last case. */
  #dropped(sandboxID: string): Answer {
    const directory = this.#directory;
    if (directory.isMoving(sandboxID)) return cutOff(sandboxID, MOVES);
    if (directory.sleeping(sandboxID) !== undefined) return cutOff(sandboxID, PAUSED_WAKING);
    return directory.isPaused(sandboxID) ? cutOff(sandboxID, PAUSED_NO_WAKE) : notFound(sandboxID);
  }
}

/** The targets of one sandbox, each made at its first use and removed with the sandbox. */
export class SandboxTargets {
  readonly #ports = new Map<number, { target: Target; policy: SandboxPort }>();
  readonly #open: (policy: SandboxPort) => Target;
  readonly #directory: SandboxDirectory;
  readonly #outputBytesPerSecond: number;
  /** Counts the requests that were sent to these targets. */
  begun = 0;
  /** The sandbox as it ran when these targets were made. */
  readonly #handle: RuntimeHandle;

  /** `outputBytesPerSecond` bounds the output of all its commands together; 0 for no bound. */
  constructor(entry: ProxyEntry, directory: SandboxDirectory, outputBytesPerSecond: number, open: (policy: SandboxPort) => Target) {
    this.#outputBytesPerSecond = outputBytesPerSecond;
    this.#open = open;
    this.#directory = directory;
    this.#handle = entry.handle;
  }

  /** Says whether the sandbox is still the same run at the same address; a resumed sandbox is a new run, even at its old address. */
  isFor({ handle }: ProxyEntry): boolean {
    return handle === this.#handle || sameRun(handle, this.#handle);
  }

  /** Returns envd as the source of a command's output, on separate connections, so that the bound on output does not delay files. */
  output(entry: ProxyEntry): Target {
    return this.#outputBytesPerSecond === 0 ? this.port(entry, ENVD_PORT) : this.port(entry, OUTPUT);
  }

  port(entry: ProxyEntry, port: number): Target {
    this.begun++;
    const known = this.#ports.get(port);
    if (known !== undefined) {
      known.policy.entry = entry;
      return known.target;
    }
    // A scan over all ports must not fill memory.
    if (this.#ports.size >= maxPorts) this.#prune();
    const pace = port === OUTPUT ? new Pace(this.#outputBytesPerSecond, performance.now()) : undefined;
    const policy = new SandboxPort(entry, port === OUTPUT ? ENVD_PORT : port, this.#directory, pace);
    const target = this.#open(policy);
    this.#ports.set(port, { target, policy });
    return target;
  }

  #prune(): void {
    for (const [port, { target }] of this.#ports) if (target.isUnused) this.#ports.delete(port);
  }

  /** The number of open exchanges and streams. */
  get open(): number {
    let open = 0;
    for (const { target } of this.#ports.values()) open += target.busy;
    return open;
  }

  get waiting(): number {
    let waiting = 0;
    for (const { target } of this.#ports.values()) waiting += target.waiting;
    return waiting;
  }

  drop(): void {
    for (const { target } of this.#ports.values()) target.drop();
    this.#ports.clear();
  }
}

const maxPorts = 256;
/** A pseudo-port: separate connections to envd for the output of commands. */
const OUTPUT = -1;

/** Treats a missing socket like an unreachable one. */
function dialled(path: string, options: object): Socket {
  try {
    return dialUnix(path, options);
  } catch (error) {
    return new Socket().destroy(error as Error);
  }
}

function sameRun(one: RuntimeHandle, other: RuntimeHandle): boolean {
  return addressOf(one) === addressOf(other) && one.runtimeID === other.runtimeID && one.pid === other.pid && one.pidStartTicks === other.pidStartTicks;
}

function addressOf({ endpoint }: RuntimeHandle): string {
  return endpoint.kind === "tcp" ? endpoint.host : endpoint.path;
}
