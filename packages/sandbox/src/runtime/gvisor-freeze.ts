// Freezing and thawing a gVisor sandbox, so that a node killed at any moment leaves nothing that cannot be found out.
//
// The kernel inside counts: stopped twice it must be let go twice, and once too often ends the sandbox. So a mark stands from before
// the stop until after it was let go, and says whether that is known; where it is not, the kernel is asked.
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Kernel } from "./gvisor-kernel.ts";
import type { RuntimeHandle } from "./runtime.ts";

/** Of one length, so that one takes the other's place in the block that the disk has given: a full one must not keep a sandbox frozen. */
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
    // Also a mark whose writing was cut off.
    const frozen = await kernel.standsStill(handle.runtimeID);
    await setKnown(handle, frozen);
    return frozen;
  }

  async function change(handle: RuntimeHandle, frozen: boolean): Promise<void> {
    if ((await isFrozen(handle)) === frozen) return;
    await mark(handle, UNKNOWN);
    const act = frozen ? kernel.stop : kernel.letGo;
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
