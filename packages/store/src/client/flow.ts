// The steps of a client operation, independent of how they are waited for: one description runs with promises or blocks the thread.
import type { Failure } from "@svc/contract/failures.ts";
import type { Opcode } from "@svc/transfer/status.ts";
import type { FileTrouble } from "../files/shared-files.ts";
import type { ArgsOf, OperationName, ResultOf } from "../rpc/operations.ts";

/** Ranges on one holder: local address, remote address and length of each. */
export type Move = { readonly endpoint: string; readonly words: BigUint64Array };

/** A file of the shared folder, and the memory for its bytes. */
export type FileMove = { readonly name: string; readonly sizeBytes: number; readonly words: BigUint64Array };

export type Step =
  | { readonly kind: "call"; readonly name: OperationName; readonly args: readonly unknown[] }
  | { readonly kind: "move"; readonly opcode: Opcode; readonly moves: readonly Move[]; readonly timeoutMs: number }
  | { readonly kind: "files"; readonly opcode: Opcode; readonly files: readonly FileMove[]; readonly timeoutMs: number }
  | { readonly kind: "wait"; readonly ms: number };

/** Yields its steps and is resumed with the result of each: a call's answer or failure, or the holders that a transfer did not reach. */
export type Flow<T> = Generator<Step, T, unknown>;

/** @throws SERVER_UNREACHABLE, TIMED_OUT: the call may have been executed all the same. */
export function* call<N extends OperationName>(name: N, ...args: ArgsOf<N>): Flow<ResultOf<N>> {
  return (yield { kind: "call", name, args }) as ResultOf<N>;
}

/** Returns a failure by endpoint for each holder whose ranges were not all transferred. */
export function* move(opcode: Opcode, moves: readonly Move[], timeoutMs: number): Flow<ReadonlyMap<string, Failure>> {
  return (yield { kind: "move", opcode, moves, timeoutMs }) as ReadonlyMap<string, Failure>;
}

/** Returns the trouble of each file, or undefined for one that was written or read completely. */
export function* moveFiles(opcode: Opcode, files: readonly FileMove[], timeoutMs: number): Flow<(FileTrouble | undefined)[]> {
  return (yield { kind: "files", opcode, files, timeoutMs }) as (FileTrouble | undefined)[];
}

export function* wait(ms: number): Flow<void> {
  yield { kind: "wait", ms };
}
