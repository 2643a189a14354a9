// Freezing and thawing a gVisor sandbox, such that a node killed at any moment can later determine the state.
//
// The kernel inside counts: a sandbox stopped twice must be resumed twice, and one resume too many ends it. So a mark exists from before the
// stop until after the resume, and says whether the state is known; if it is not, the kernel is asked.
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Kernel } from "./gvisor-kernel.ts";
import type { RuntimeHandle } from "./runtime.ts";

/** Both marks have the same length, so that one overwrites the other in the block already allocated: a full disk must not keep a sandbox frozen. */
const FROZEN = "frozen ";
const UNKNOWN = "unknown";

export type Freezer = {
  isFrozen(handle: RuntimeHandle): Promise<boolean>;
  freeze(handle: RuntimeHandle): Promise<void>;
  thaw(handle: RuntimeHandle): Promise<void>;
};

export function openFreezer(kernel: Kernel): Freezer {
  const markOf = ({ directory }: RuntimeHandle) => join(directory, "freezing");
  const setKnown = (handle: RuntimeHandle, frozen: boolean) => (frozen ? mark(handle, FROZEN) : rm(markOf(handle), { force: true }));

  async function mark(handle: RuntimeHandle, text: string): Promise<void> {
    await writeFile(markOf(handle), text, { flag: "r+" }).catch(async (error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT") throw error;
      await writeFile(markOf(handle), text);
    });
  }

  async function isFrozen(handle: RuntimeHandle): Promise<boolean> {
    const found = await readFile(markOf(handle), "utf8").catch((error: NodeJS.ErrnoException) => {
      if (error.code === "ENOENT") return undefined;
      throw error;
    });
    if (found === undefined) return false;
    if (found.trimEnd() === FROZEN.trimEnd()) return true;
    // This also covers a mark whose writing was cut off.
    const frozen = await kernel.isStopped(handle.runtimeID);
    await setKnown(handle, frozen);
    return frozen;
  }

  async function change(handle: RuntimeHandle, frozen: boolean): Promise<void> {
    if ((await isFrozen(handle)) === frozen) return;
    await mark(handle, UNKNOWN);
    const act = frozen ? kernel.stop : kernel.resume;
    const failed = await act(handle.runtimeID).then(
      () => undefined,
      (error: unknown) => ({ error }),
    );
    if (failed === undefined) await setKnown(handle, frozen);
    else if ((await isFrozen(handle)) !== frozen)
      fail("INTERNAL", `sandbox ${handle.runtimeID} could not be ${frozen ? "frozen" : "thawed"}`, { cause: failed.error });
  }

  return { isFrozen, freeze: (handle) => change(handle, true), thaw: (handle) => change(handle, false) };
}
