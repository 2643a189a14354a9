// One index read back into another by way of a snapshot's file.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NativeIndex } from "../src/native.ts";

/** A path of its own; both go with the process at the latest. */
export function snapshotPath(): string {
  const folder = mkdtempSync(join(tmpdir(), "svc-snapshot-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return join(folder, "index.snapshot");
}

/** The note that went with it. */
export async function copyInto(target: NativeIndex, source: NativeIndex, note = ""): Promise<string> {
  const path = snapshotPath();
  await source.save(path, note);
  const read = target.load(path);
  rmSync(path);
  return read;
}
