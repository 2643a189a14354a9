// Connections to the master: opened on demand and reopened after they broke; every call has a time limit.
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import { RpcClient } from "../../rpc/client.ts";
import { codes } from "../../rpc/codes.ts";
import type { ArgsOf, OperationName, ResultOf } from "../../rpc/operations.ts";
import type { Discovery } from "./discovery.ts";

const FIRST_RETRY_MS = 20;
const MAX_RETRY_MS = 500;
/** The longest retry delay in a cluster of masters, whose new leader answers shortly after it took over, without notice. */
const MAX_SEEK_MS = 25;
/** Failures that a retry may resolve: an unreachable master, no answer in time, a master that reads its log. */
const PASSING = ["SERVER_UNREACHABLE", "TIMED_OUT"];

export type ConnectionsOptions = {
  readonly master: Discovery;
  readonly brand: string;
  readonly count: number;
  readonly callMs: number;
  readonly token?: string | undefined;
  /** Runs on each new connection before any call; if it throws, the connection is not used. */
  readonly greet?: (rpc: RpcClient) => Promise<void>;
};

type Slot = { rpc: RpcClient | undefined; opening: Promise<RpcClient> | undefined };

export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #slots: Slot[];
  #closed: Failure | undefined;
  /** Aborted when another master takes over, to end all retry delays. */
  #moved = new AbortController();

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.count }, () => ({ rpc: undefined, opening: undefined }));
  }

  /** Returns the open connection with the fewest running calls, or undefined when none is open; for callers that prefer not to wait. */
  open(): RpcClient | undefined {
    let best: RpcClient | undefined;
    for (const { rpc } of this.#slots) {
      if (rpc === undefined || rpc.ended !== undefined) continue;
      if (rpc.waiting === 0) return rpc;
      if (best === undefined || rpc.waiting < best.waiting) best = rpc;
    }
    return best;
  }

  /**
   * Makes the call once and returns the master's answer, errors included.
   * @throws SERVER_UNREACHABLE, TIMED_OUT: the call may have been executed all the same.
   */
  async call<N extends OperationName>(name: N, ...args: ArgsOf<N>): Promise<ResultOf<N>> {
    const rpc = await this.connection();
    const result = await rpc.call(name, ...args);
    // The master at that address does not lead, so the next call looks the leader up again.
    if (this.#options.master.isMoving && doesNotLead(result)) rpc.abandon("the store's master there does not lead");
    return result;
  }

  /** Repeats `call` within `boundMs` while the master does not answer or still replays its log; for calls that may be executed twice. */
  async callUntil<N extends OperationName>(boundMs: number, name: N, ...args: ArgsOf<N>): Promise<ResultOf<N>> {
    const endMs = performance.now() + boundMs;
    const mostMs = this.#options.master.isMoving ? MAX_SEEK_MS : MAX_RETRY_MS;
    for (let delayMs = FIRST_RETRY_MS; ; delayMs = Math.min(mostMs, delayMs * 2)) {
      let failure: unknown;
      try {
        const result = await this.call(name, ...args);
        if (!isRecovering(result)) return result;
        if (performance.now() + delayMs > endMs) return result;
      } catch (error) {
        failure = error;
      }
      const isPassing = failure === undefined || (failure instanceof Failure && PASSING.includes(failure.name));
      if (!isPassing || this.#closed !== undefined || performance.now() + delayMs > endMs) throw failure ?? this.#closed;
      // A change of the leader ends the delay at once.
      await sleep(delayMs, undefined, { signal: this.#moved.signal }).catch(() => undefined);
    }
  }

  /** Returns an open connection. Opens another one while there are fewer than `count` and all of them are busy. */
  async connection(): Promise<RpcClient> {
    if (this.#closed !== undefined) throw this.#closed;
    const best = this.open();
    if (best?.waiting === 0) return best;
    const free = this.#slots.find(({ rpc, opening }) => opening === undefined && (rpc === undefined || rpc.ended !== undefined));
    if (free !== undefined) {
      const opening = this.#connect(free);
      // Open connections serve the calls meanwhile.
      if (best === undefined) return opening;
      opening.catch(() => undefined);
    }
    return best ?? Promise.any(this.#slots.flatMap(({ opening }) => opening ?? [])).catch((error: AggregateError) => Promise.reject(error.errors[0]));
  }

  /** Called when another master leads: running calls fail with SERVER_UNREACHABLE, and retries go to the new leader. */
  drop(): void {
    this.#moved.abort();
    this.#moved = new AbortController();
    for (const { rpc } of this.#slots) rpc?.abandon("another master leads");
  }

  /** Ends running calls with SHUTTING_DOWN. */
  close(): void {
    this.#closed ??= new Failure("SHUTTING_DOWN", "the store's client is closed");
    for (const { rpc } of this.#slots) rpc?.close();
  }

  #connect(slot: Slot): Promise<RpcClient> {
    const { master, brand, callMs, token, greet } = this.#options;
    const opened = (async () => {
      const { host, port, peers } = await master.find();
      const rpc = await RpcClient.connect(host, port, { brand, callMs, token, connectMs: callMs, peers });
      try {
        await greet?.(rpc);
        if (this.#closed !== undefined) throw this.#closed;
      } catch (error) {
        rpc.close();
        throw error;
      }
      slot.rpc = rpc;
      return rpc;
    })().finally(() => {
      slot.opening = undefined;
    });
    slot.opening = opened;
    return opened;
  }
}

const unavailable: readonly unknown[] = [codes.UNAVAILABLE_IN_CURRENT_MODE, codes.UNAVAILABLE_IN_CURRENT_STATUS];

function isRecovering(result: unknown): boolean {
  const { ok, code } = (result ?? {}) as { ok?: boolean; code?: number };
  return ok === false && unavailable.includes(code);
}

/** Also accepts the answer to a batch, whose items then all have that code. */
export const doesNotLead = (result: unknown): boolean => isRecovering(Array.isArray(result) ? result[0] : result);
