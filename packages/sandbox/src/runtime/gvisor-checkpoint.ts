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

/** Far beyond a disk of 50 MB/s and the largest sandbox; a checkpoint cannot be called off once runsc has asked for it. */
const CHECKPOINT_TIMEOUT_MS = 10 * 60_000;

/** Of the checkpointed sandbox: its restore must name the same annotations, and whether it had any depends on how it was started. */
const configFile = "config.json";

export function openCheckpoint(spawner: Spawner, runsc: Runsc, kernel: Kernel, freezer: Freezer): (handle: RuntimeHandle, into: Checkpoint) => Promise<void> {
  return async (handle, { directory, kind, isBrief }) => {
    const wasFrozen = await freezer.isFrozen(handle);
    const verb = kind === "memory" ? "checkpoint" : "fscheckpoint";
    const next = kind === "memory" ? await nextLayer(handle.directory) : undefined;
    const layering = next === undefined ? [] : ["-next-layer", next];
    // Of little use where it stands still already; an earlier runsc does not know it.
    const prepares = isBrief === true && next !== undefined && !wasFrozen && (await runsc.programs.of(handle.directory)) === (await runsc.programs.current());
    const preparing = prepares ? ["-prepare-pages"] : [];
    // runsc stops the sandbox itself and lets it go on afterwards; one that was frozen stays so.
    const { code, words } = await runsc.verb(handle, CHECKPOINT_TIMEOUT_MS, verb, "-image-path", directory, "-leave-running", ...layering, ...preparing);
    // Without its client the sandbox finishes all the same, and stands still until then.
    if (code === null && !wasFrozen) await eventually(async () => !(await kernel.standsStill(handle.runtimeID)), CHECKPOINT_TIMEOUT_MS);
    if (code !== 0) fail("CHECKPOINT_FAILED", words);
    const { layersEnd, keptIn } = await checkPages({ directory, kind });
    await keepPages(spawner, handle.directory, keptIn, directory);
    // Without an end it holds all pages itself: the sandbox is of an earlier version, or too much was unused in its layers.
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
