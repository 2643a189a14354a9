// The interface of the native module, with the C++ core's integers and bigints unconverted.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { fail } from "@svc/contract/failures.ts";

export type EngineHandle = { readonly engine: unique symbol };

/** 0 and positive values, or a negative code (for handles: the invalid one) with its message. */
export type Answer = number | bigint | string | readonly [code: number | bigint, error: string];

export interface Native {
  create(autoDiscover: boolean, filters: readonly string[]): EngineHandle;
  /** Operations are named after the methods of the C++ class. */
  call(engine: EngineHandle, operation: string, texts: readonly string[], numbers: BigUint64Array): Answer;
  callAsync(engine: EngineHandle, operation: string, texts: readonly string[], numbers: BigUint64Array): Promise<Answer>;
  /** Like call, on its own thread: undefined after the time-out. The operation continues, and the same call made again waits for it. */
  callWithin(engine: EngineHandle, operation: string, texts: readonly string[], numbers: BigUint64Array, timeoutMs: number): Answer | undefined;
  /** Takes triples of local address, remote address and length. Returns 0 or a negative code. */
  transferSync(engine: EngineHandle, opcode: number, target: bigint, triples: BigUint64Array, timeoutMs: number): number;
  /** Returns 0 or a negative code if the transfer ended within this call. `lingers` waits briefly for that. */
  transferAsync(
    engine: EngineHandle,
    opcode: number,
    target: bigint,
    triples: BigUint64Array,
    timeoutMs: number,
    ticket: number,
    lingers: boolean,
  ): number | undefined;
  /** Registers the receiver of all other completions of transferAsync, as a flat list of ticket, code, message. */
  listen(completed: (list: readonly (number | string)[]) => void): void;
  /** Takes six words per request: opcode, source, target, offset, length, additional retries. */
  submit(engine: EngineHandle, batch: bigint, packed: BigUint64Array, notifyName?: string, notifyMessage?: string): number;
  /** `out` receives status and bytes; task -1 means the whole batch. */
  status(engine: EngineHandle, batch: bigint, task: number, out: BigUint64Array): number;
  lastTransferError(): string;
  alloc(sizeBytes: number): ArrayBuffer;
  openShm(name: string, sizeBytes: number, create: boolean): ArrayBuffer;
  unlinkShm(name: string): number;
  addressOf(memory: ArrayBuffer | ArrayBufferView): bigint;
}

let loaded: Native | undefined;

/** Loads the module once: from SVC_TRANSFER_NATIVE, or from the build folder. */
export function native(): Native {
  if (loaded !== undefined) return loaded;
  const file = process.env["SVC_TRANSFER_NATIVE"] || fileURLToPath(new URL("../native/build/svc_transfer.node", import.meta.url));
  if (!existsSync(file)) fail("HOST_UNSUITABLE", `the transfer engine's native module is not at ${file}; ./svc setup builds it`);
  loaded = createRequire(import.meta.url)(file) as Native;
  loaded.listen(settle);
  return loaded;
}

type Waiting = { resolve(): void; reject(code: number, error: string): void; keep: unknown };
const waiting = new Map<number, Waiting>();
let nextTicket = 1;
/** Counts consecutive transfers that ended within their call: a caller that awaits such transfers must not starve the event loop. */
let endedAtOnce = 0;
const MOST_AT_ONCE = 32;
/** True if a transfer has begun in the current synchronous run: a caller that begins another one did not await the first. */
let hasBegun = false;
const forgetBegun = () => {
  hasBegun = false;
};
/** True if the last transfer began while no other was in flight. */
let wasAlone = false;

function settle(list: readonly (number | string)[]): void {
  for (let i = 0; i < list.length; i += 3) {
    const ticket = list[i] as number;
    const one = waiting.get(ticket);
    waiting.delete(ticket);
    const code = list[i + 1] as number;
    if (code === 0) one?.resolve();
    else one?.reject(code, list[i + 2] as string);
  }
}

/** transferAsync as a promise. `keep` holds the memory and the engine of the transfer until it settles. */
export function transferPromise(
  engine: EngineHandle,
  opcode: number,
  target: bigint,
  triples: BigUint64Array,
  timeoutMs: number,
  keep: unknown,
  failure: (code: number, error: string) => Error,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const ticket = nextTicket;
    nextTicket = nextTicket >= 0x7fffffff ? 1 : nextTicket + 1;
    const isAlone = waiting.size === 0 && !hasBegun;
    const lingers = isAlone && wasAlone;
    wasAlone = isAlone;
    if (!hasBegun) queueMicrotask(forgetBegun);
    hasBegun = true;
    const code = native().transferAsync(engine, opcode, target, triples, timeoutMs, ticket, lingers);
    if (code === undefined) {
      waiting.set(ticket, { resolve, reject: (code, error) => reject(failure(code, error)), keep });
      return;
    }
    if (code !== 0) return reject(failure(code, native().lastTransferError()));
    if (++endedAtOnce < MOST_AT_ONCE) return resolve();
    endedAtOnce = 0;
    setImmediate(resolve);
  });
}
