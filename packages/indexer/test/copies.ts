// Copies one index into another through a snapshot's file.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NativeIndex } from "../src/index/native.ts";

/** Returns a path in a folder of its own, which is removed when the process exits. */
export function snapshotPath(): string {
  const folder = mkdtempSync(join(tmpdir(), "svc-snapshot-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "index.snapshot");
}

/** Copies an index, and returns the note that was saved with it. */
export async function copyInto(target: NativeIndex, source: NativeIndex, note = ""): Promise<string> {
  const path = snapshotPath();
  await source.save(path, note);
  const read = target.load(path);
  rmSync(path);
  return read;
}
