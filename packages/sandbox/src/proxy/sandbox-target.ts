// A port of one sandbox as a target: dialled on its address, or through envd's relay when only its loopback listens.
import { Socket } from "node:net";
import { type Answer, answer } from "@svc/kit/proxy/answer.ts";
import type { Target, TargetPolicy, Trouble, Way } from "@svc/kit/proxy/target.ts";
import { dialUnix } from "../runtime/dial.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";
import type { ProxyEntry, SandboxDirectory } from "./directory.ts";

export const envdPort = 49983;

/** Node's own servers close idle connections after 5 s; ours must be gone before. */
const applicationIdleMs = 4_000;
/** envd keeps its connections longer than this. */
const envdIdleMs = 30_000;

/** SDKs tell a sandbox that is gone from one whose port is closed by these very words. */
export function notFound(sandboxID: string): Answer {
  return answer(502, "The sandbox was not found", { sandboxId: sandboxID }, { "x-svc-reason": "not_found" });
}

function portClosed(sandboxID: string, port: number): Answer {
  return answer(502, "The sandbox is running but port is not open", { sandboxId: sandboxID, port }, { "x-svc-reason": "port_closed" });
}

export class SandboxPort implements TargetPolicy {
  /** The sandbox as the directory last knew it; its tokens and address are read at each dial. */
  entry: ProxyEntry;
  readonly idleMs: number;
  readonly #port: number;
  readonly #directory: SandboxDirectory;
  /** Which way led in last time. */
  #relayFirst = false;

  constructor(entry: ProxyEntry, port: number, directory: SandboxDirectory) {
    this.entry = entry;
    this.#port = port;
    this.#directory = directory;
    this.idleMs = port === envdPort ? envdIdleMs : applicationIdleMs;
  }

  ways(): readonly Way[] {
    const { endpoint } = this.entry.handle;
    const envd = endpoint.kind === "tcp" ? { host: endpoint.host, port: envdPort } : (options: object) => dialled(endpoint.path, options);
    if (this.#port === envdPort) return [{ connect: envd }];
    const preface = `GET /relay?port=${this.#port} HTTP/1.1\r\nHost: envd\r\nConnection: Upgrade\r\nUpgrade: svc-relay\r\nX-Access-Token: ${this.entry.envdAccessToken}\r\n\r\n`;
    const relay: Way = { connect: envd, preface };
    if (endpoint.kind === "unix") return [relay];
    const direct: Way = { connect: { host: endpoint.host, port: this.#port } };
    return this.#relayFirst ? [relay, direct] : [direct, relay];
  }

  reached(way: Way): void {
    this.#relayFirst = way.preface !== undefined;
  }

  answerFor(trouble: Trouble, detail: string): Answer {
    const { sandboxID } = this.entry;
    if (trouble === "dropped" || this.#directory.find(sandboxID) === undefined) return notFound(sandboxID);
    if (trouble === "refused") return portClosed(sandboxID, this.#port);
    const members = { sandboxId: sandboxID, port: this.#port };
    if (trouble === "unreachable") return answer(502, `The sandbox is running but could not be reached: ${detail}`, members, { "x-svc-reason": "unreachable" });
    if (trouble === "malformed") return answer(502, `The response from the sandbox is malformed: ${detail}`, members, { "x-svc-reason": "bad_response" });
    return answer(502, `The sandbox is running but gave no response: ${detail}`, members, { "x-svc-reason": "no_response" });
  }
}

/** The targets of one sandbox, made when first asked for and gone with it. */
export class SandboxTargets {
  readonly #ports = new Map<number, { target: Target; policy: SandboxPort }>();
  readonly #open: (policy: SandboxPort) => Target;
  readonly #directory: SandboxDirectory;
  /** The sandbox as it ran when these targets were made. */
  readonly #handle: RuntimeHandle;

  constructor(entry: ProxyEntry, directory: SandboxDirectory, open: (policy: SandboxPort) => Target) {
    this.#open = open;
    this.#directory = directory;
    this.#handle = entry.handle;
  }

  /** Whether the sandbox still runs where and as it did; a resumed one does not, even at the address that it had. */
  isFor({ handle }: ProxyEntry): boolean {
    return handle === this.#handle || sameRun(handle, this.#handle);
  }

  port(entry: ProxyEntry, port: number): Target {
    const known = this.#ports.get(port);
    if (known !== undefined) {
      known.policy.entry = entry;
      return known.target;
    }
    // A scan over all ports must not be remembered for ever.
    if (this.#ports.size >= maxPorts) this.#prune();
    const policy = new SandboxPort(entry, port, this.#directory);
    const target = this.#open(policy);
    this.#ports.set(port, { target, policy });
    return target;
  }

  #prune(): void {
    for (const [port, { target }] of this.#ports) if (target.isUnused) this.#ports.delete(port);
  }

  drop(): void {
    for (const { target } of this.#ports.values()) target.drop();
    this.#ports.clear();
  }
}

const maxPorts = 256;

/** A socket that is not there fails as one that cannot be reached. */
function dialled(path: string, options: object): Socket {
  try {
    return dialUnix(path, options);
  } catch (error) {
    return new Socket().destroy(error as Error);
  }
}

function sameRun(one: RuntimeHandle, other: RuntimeHandle): boolean {
  return placeOf(one) === placeOf(other) && one.runtimeID === other.runtimeID && one.pid === other.pid && one.pidStartTicks === other.pidStartTicks;
}

function placeOf({ endpoint }: RuntimeHandle): string {
  return endpoint.kind === "tcp" ? endpoint.host : endpoint.path;
}
