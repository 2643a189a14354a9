// Checkpoints of a gVisor sandbox: runsc's checkpoint for memory and files, its file system checkpoint for files alone.
import { copyFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { Freezer } from "./gvisor-freeze.ts";
import { keepPages } from "./gvisor-kept.ts";
import type { Kernel } from "./gvisor-kernel.ts";
import { keepLayers, nextLayer } from "./gvisor-layers.ts";
import { checkPages } from "./gvisor-pages.ts";
import type { Runsc } from "./gvisor-runsc.ts";
import { keepEmptyTmp } from "./gvisor-tmp.ts";
import { eventually } from "./process.ts";
import type { Checkpoint, RuntimeHandle } from "./runtime.ts";

/** Ample for a disk of 50 MB/s and the largest sandbox; a checkpoint cannot be cancelled once runsc has requested it. */
const CHECKPOINT_TIMEOUT_MS = 10 * 60_000;

/** Copied from the checkpointed sandbox: its restore must name the same annotations, and whether it had any depends on how it was started. */
const configFile = "config.json";

export function openCheckpoint(spawner: Spawner, runsc: Runsc, kernel: Kernel, freezer: Freezer): (handle: RuntimeHandle, into: Checkpoint) => Promise<void> {
  return async (handle, { directory, kind, isBrief }) => {
    const wasFrozen = await freezer.isFrozen(handle);
    const verb = kind === "memory" ? "checkpoint" : "fscheckpoint";
    const next = kind === "memory" ? await nextLayer(handle.directory) : undefined;
    const layering = next === undefined ? [] : ["-next-layer", next];
    // Preparing pages gains little where the sandbox is already frozen, and an earlier runsc does not know the option.
    const prepares = isBrief === true && next !== undefined && !wasFrozen && (await runsc.programs.of(handle.directory)) === (await runsc.programs.current());
    const preparing = prepares ? ["-prepare-pages"] : [];
    // runsc stops the sandbox and resumes it afterwards; a sandbox that was frozen stays frozen.
    const { code, message } = await runsc.verb(handle, CHECKPOINT_TIMEOUT_MS, verb, "-image-path", directory, "-leave-running", ...layering, ...preparing);
    // If runsc was killed, the sandbox finishes the checkpoint all the same and stays stopped until then.
    if (code === null && !wasFrozen) await eventually(async () => !(await kernel.isStopped(handle.runtimeID)), CHECKPOINT_TIMEOUT_MS);
    if (code !== 0) fail("CHECKPOINT_FAILED", message);
    const { layersEnd, keptIn } = await checkPages({ directory, kind });
    await keepPages(spawner, handle.directory, keptIn, directory);
    // Without `layersEnd` the checkpoint holds all pages itself: the sandbox is of an earlier version, or too much of its layers was unused.
    if (next !== undefined && layersEnd > 0) await keepLayers(spawner, handle.directory, next, layersEnd, directory);
    if (kind === "filesystem") await keepEmptyTmp(spawner, directory);
    else {
      await copyFile(join(handle.directory, configFile), join(directory, configFile));
      await runsc.programs.note(directory, await runsc.programs.of(handle.directory));
    }
  };
}

export async function checkpointedAnnotations({ directory }: Checkpoint): Promise<Record<string, string>> {
  const text = await readFile(join(directory, configFile), "utf8");
  return (JSON.parse(text) as { annotations?: Record<string, string> }).annotations ?? {};
}
