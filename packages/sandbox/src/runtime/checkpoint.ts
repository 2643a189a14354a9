// The parts that all drivers' checkpoints share: their kinds, and a directory that holds a whole checkpoint or nothing.
import { readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { CheckpointKind, RuntimeName } from "./runtime.ts";

/**
 * File name prefix of files that a checkpoint shares with its sandbox and with other checkpoints based on the same files; such a file is never
 * written again. A changed mtime reveals a modification, so the file need not be read.
 */
export const SEALED = "sealed-";

export type Offer = { readonly name: RuntimeName; readonly checkpoints: ReadonlySet<CheckpointKind> };

/** @throws CHECKPOINT_UNAVAILABLE with what to do instead. */
export function mustOffer({ name, checkpoints }: Offer, kind: CheckpointKind, runtimeID: string): void {
  if (checkpoints.has(kind)) return;
  const instead =
    checkpoints.size > 0 ? "pass memory: false to keep its files alone, or run the node with the gvisor driver" : "run the node with the gvisor driver";
  const what = kind === "memory" ? "the memory" : "the files";
  fail("CHECKPOINT_UNAVAILABLE", `sandbox ${runtimeID}: the ${name} driver cannot keep ${what} of a sandbox; ${instead}`);
}

export async function mustBeEmpty(directory: string): Promise<void> {
  const names = await readdir(directory).catch((cause: Error) => fail("CHECKPOINT_FAILED", `${directory} cannot be written to: ${cause.message}`, { cause }));
  if (names.length > 0) fail("CHECKPOINT_FAILED", `${directory} is not empty: it holds ${names[0]}`);
}

export async function emptied(directory: string): Promise<void> {
  const names = await readdir(directory).catch(() => []);
  await Promise.all(names.map((name) => rm(join(directory, name), { recursive: true, force: true })));
}
