// Freezing and thawing a gVisor sandbox, so that a verb killed at any moment leaves nothing that cannot be found out.
//
// runsc pause stops the kernel inside, then writes "paused" into its record. Killed between the two, the record lies, and killed
// while writing it is empty; pausing twice needs two resumes, and a resume too many ends the sandbox. So a mark, a copy of the
// record, stands while either verb runs, and whoever finds it asks the kernel inside.
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { type Runsc, statusOf } from "./gvisor-runsc.ts";
import type { RuntimeHandle } from "./runtime.ts";

const VERB_TIMEOUT_MS = 15_000;

export type Freezer = {
  isFrozen(handle: RuntimeHandle): Promise<boolean>;
  freeze(handle: RuntimeHandle): Promise<void>;
  thaw(handle: RuntimeHandle): Promise<void>;
};

export function openFreezer(runsc: Runsc): Freezer {
  const markOf = ({ directory }: RuntimeHandle) => join(directory, "freezing");

  async function isFrozen(handle: RuntimeHandle): Promise<boolean> {
    const { runtimeID } = handle;
    const mark = await readFile(markOf(handle), "utf8").catch(() => undefined);
    const record = await runsc.recordOf(runtimeID);
    if (mark === undefined) return statusOf(record ?? "") === "paused";
    // A mark that is itself cut off was never followed by a verb.
    const known = record ?? (statusOf(mark) === undefined ? undefined : mark) ?? fail("INTERNAL", `runsc's record of sandbox ${runtimeID} is lost`);
    const frozen = await runsc.standsStill(runtimeID);
    await runsc.setRecord(runtimeID, known, frozen ? "paused" : "running");
    await rm(markOf(handle), { force: true });
    return frozen;
  }

  async function change(handle: RuntimeHandle, verb: "pause" | "resume"): Promise<void> {
    const frozen = verb === "pause";
    if ((await isFrozen(handle)) === frozen) return;
    await writeFile(markOf(handle), (await runsc.recordOf(handle.runtimeID)) ?? "");
    const { code, words } = await runsc.verb(VERB_TIMEOUT_MS, verb, handle.runtimeID);
    if (code === 0) return rm(markOf(handle), { force: true });
    if ((await isFrozen(handle)) !== frozen) fail("INTERNAL", `sandbox ${handle.runtimeID}: ${words}`);
  }

  return { isFrozen, freeze: (handle) => change(handle, "pause"), thaw: (handle) => change(handle, "resume") };
}
