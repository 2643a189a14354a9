// The pages files of earlier checkpoints that a checkpoint is kept in: a sandbox maps its memory from them, and what it has not
// changed since is not written again.
import { join } from "node:path";
import type { Spawner } from "@svc/kit/spawn.ts";
import { linkOrCopy } from "./gvisor-layers.ts";

// DIRECTORY/upper/runsc-pages-NNNNNN   in a sandbox's directory, named by runsc when it starts: what its checkpoint is kept in, and
//                                      last that checkpoint's own. Without them the next checkpoint holds all pages itself.
// pages-NNNNNN.img                     in a checkpoint

const numbered = (number: number) => String(number).padStart(6, "0");

/** Names in a checkpoint, too, what it is kept in. */
export async function keepPages(spawner: Spawner, directory: string, keptIn: readonly number[], into: string): Promise<void> {
  const inSandbox = (number: number) => join(directory, "upper", `runsc-pages-${numbered(number)}`);
  await Promise.all(keptIn.map((number, place) => linkOrCopy(spawner, inSandbox(number), join(into, `pages-${numbered(place)}.img`))));
}
