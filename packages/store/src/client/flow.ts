// What an operation of the client does, step by step, apart from how its steps are waited for: one description, run with promises or holding the thread.
import type { Failure } from "@svc/contract/failures.ts";
import type { Opcode } from "@svc/transfer/status.ts";
import type { FileTrouble } from "../files/shared-files.ts";
import type { ArgsOf, OperationName, ResultOf } from "../rpc/operations.ts";

/** Ranges to or from one holder: local address, remote address and length of each. */
export type Move = { readonly endpoint: string; readonly words: BigUint64Array };

/** A file of the shared folder, and the memory that its bytes come from or go to. */
export type FileMove = { readonly name: string; readonly sizeBytes: number; readonly words: BigUint64Array };

export type Step =
  | { readonly kind: "call"; readonly name: OperationName; readonly args: readonly unknown[] }
  | { readonly kind: "move"; readonly opcode: Opcode; readonly moves: readonly Move[]; readonly timeoutMs: number }
  | { readonly kind: "files"; readonly opcode: Opcode; readonly files: readonly FileMove[]; readonly timeoutMs: number }
  | { readonly kind: "wait"; readonly ms: number };

/** Yields its steps, and is resumed with what came of each: a call's answer or its failure, the holders that a move did not reach. */
export type Flow<T> = Generator<Step, T, unknown>;

/** @throws SERVER_UNREACHABLE, TIMED_OUT: the call may have been obeyed all the same. */
export function* call<N extends OperationName>(name: N, ...args: ArgsOf<N>): Flow<ResultOf<N>> {
  return (yield { kind: "call", name, args }) as ResultOf<N>;
}

/** Why, by endpoint, for those whose ranges did not all go through. */
export function* move(opcode: Opcode, moves: readonly Move[], timeoutMs: number): Flow<ReadonlyMap<string, Failure>> {
  return (yield { kind: "move", opcode, moves, timeoutMs }) as ReadonlyMap<string, Failure>;
}

/** For each file what was wrong, undefined for one that was written or read whole. */
export function* moveFiles(opcode: Opcode, files: readonly FileMove[], timeoutMs: number): Flow<(FileTrouble | undefined)[]> {
  return (yield { kind: "files", opcode, files, timeoutMs }) as (FileTrouble | undefined)[];
}

export function* wait(ms: number): Flow<void> {
  yield { kind: "wait", ms };
}
