// The pages files of earlier checkpoints to which a checkpoint refers: a sandbox maps its memory from them, and pages that it has not changed
// since are not written again.
import { join } from "node:path";
import type { Spawner } from "@svc/kit/spawn.ts";
import { linkOrCopy } from "./gvisor-layers.ts";

// DIRECTORY/upper/runsc-pages-NNNNNN   in a sandbox's directory, named by runsc when it starts: the files to which its checkpoint
//                                      refers, and last that checkpoint's own. Without them the next checkpoint holds all pages itself.
// pages-NNNNNN.img                     in a checkpoint

const numbered = (number: number) => String(number).padStart(6, "0");

/** Adds the pages files to which a checkpoint refers to that checkpoint. */
export async function keepPages(spawner: Spawner, directory: string, keptIn: readonly number[], into: string): Promise<void> {
  const inSandbox = (number: number) => join(directory, "upper", `runsc-pages-${numbered(number)}`);
  await Promise.all(keptIn.map((number, index) => linkOrCopy(spawner, inSandbox(number), join(into, `pages-${numbered(index)}.img`))));
}
