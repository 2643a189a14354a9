// Connections to the master: opened when they are needed, opened again after they broke, every call within its time.
import { setTimeout as sleep } from "node:timers/promises";
import { Failure } from "@svc/contract/failures.ts";
import { RpcClient } from "../../rpc/client.ts";
import { codes } from "../../rpc/codes.ts";
import type { ArgsOf, OperationName, ResultOf } from "../../rpc/operations.ts";
import type { Discovery } from "./discovery.ts";

const FIRST_RETRY_MS = 20;
const MAX_RETRY_MS = 500;
/** Where another master may take the lead: it answers a moment after it has it, which nobody is told. */
const MAX_SEEK_MS = 25;
/** What a repeat may cure: nobody there, no answer in time, a master that reads its log. */
const PASSING = ["SERVER_UNREACHABLE", "TIMED_OUT"];

export type ConnectionsOptions = {
  readonly master: Discovery;
  readonly brand: string;
  readonly count: number;
  readonly callMs: number;
  readonly token?: string | undefined;
  /** Runs on each new connection before anything else; where it throws, the connection is not used. */
  readonly greet?: (rpc: RpcClient) => Promise<void>;
};

type Slot = { rpc: RpcClient | undefined; opening: Promise<RpcClient> | undefined };

export class Connections {
  readonly #options: ConnectionsOptions;
  readonly #slots: Slot[];
  #closed: Failure | undefined;
  /** Aborted when another master leads: it ends every wait for the next try. */
  #moved = new AbortController();

  constructor(options: ConnectionsOptions) {
    this.#options = options;
    this.#slots = Array.from({ length: options.count }, () => ({ rpc: undefined, opening: undefined }));
  }

  /** The open connection with the fewest calls under way; undefined when none is open. For callers who would rather not wait. */
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
   * Once. An answer of the master, its errors included, is what it gives.
   * @throws SERVER_UNREACHABLE, TIMED_OUT: the call may have been obeyed all the same.
   */
  async call<N extends OperationName>(name: N, ...args: ArgsOf<N>): Promise<ResultOf<N>> {
    const rpc = await this.connection();
    const result = await rpc.call(name, ...args);
    // Whoever answers there does not lead: the next call asks again who does.
    if (this.#options.master.isMoving && doesNotLead(result)) rpc.abandon("the store's master there does not lead");
    return result;
  }

  /** As `call`, again and again within `boundMs` while the master does not answer or reads its log: for what may be done twice. */
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
      // Who leads now is asked at once.
      await sleep(delayMs, undefined, { signal: this.#moved.signal }).catch(() => undefined);
    }
  }

  /** An open connection: one more while there are fewer than `count` and all have calls under way. */
  async connection(): Promise<RpcClient> {
    if (this.#closed !== undefined) throw this.#closed;
    const best = this.open();
    if (best?.waiting === 0) return best;
    const free = this.#slots.find(({ rpc, opening }) => opening === undefined && (rpc === undefined || rpc.ended !== undefined));
    if (free !== undefined) {
      const opening = this.#connect(free);
      // Those that are open go on meanwhile.
      if (best === undefined) return opening;
      opening.catch(() => undefined);
    }
    return best ?? Promise.any(this.#slots.flatMap(({ opening }) => opening ?? [])).catch((error: AggregateError) => Promise.reject(error.errors[0]));
  }

  /** Another master leads: what is under way fails with SERVER_UNREACHABLE, and is asked of that one. */
  drop(): void {
    this.#moved.abort();
    this.#moved = new AbortController();
    for (const { rpc } of this.#slots) rpc?.abandon("another master leads");
  }

  /** Ends what is under way: it fails with SHUTTING_DOWN. */
  close(): void {
    this.#closed ??= new Failure("SHUTTING_DOWN", "the store's client is closed");
    for (const { rpc } of this.#slots) rpc?.close();
  }

  #connect(slot: Slot): Promise<RpcClient> {
    const { master, brand, callMs, token, greet } = this.#options;
    const opened = (async () => {
      const { host, port } = await master.find();
      const rpc = await RpcClient.connect(host, port, { brand, callMs, token, connectMs: callMs });
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

/** Also of a batch, whose items all say so. */
export const doesNotLead = (result: unknown): boolean => isRecovering(Array.isArray(result) ? result[0] : result);
