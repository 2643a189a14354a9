// Exports the difference between a gVisor sandbox's files and its template, as a layer for the host's overlay file system.
//
// runsc writes its upper layer as an archive that already marks deletions as overlayfs does. The archive cannot contain attributes with a binary
// value (such as file capabilities), so envd reads those inside the sandbox, and they are set here.
import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import type { Freezer } from "./gvisor-freeze.ts";
import type { Runsc } from "./gvisor-runsc.ts";
import { COPY_TIMEOUT_MS, runCopy, unpackForeignScript } from "./layer-archive.ts";
import { envdPathInside } from "./rootfs.ts";
import type { RuntimeHandle } from "./runtime.ts";

/** Arguments: archive, layer, folder for intermediate files, runsc, its state folder, id, path of envd inside, path of envd here. */
const script = `set -e
archive=$1 layer=$2 between=$3 runsc=$4 state=$5 id=$6 inside=$7 envd=$8
unpack() { ${unpackForeignScript}; }
unpack "$archive" "$layer"
rm -f "$archive"
cd "$layer"
find . \\( -type f -o -type d \\) -print0 >"$between/paths"
"$runsc" "--root=$state" exec "$id" "$inside" -list-attributes / <"$between/paths" >"$between/attributes"
"$envd" -apply-attributes "$layer" <"$between/attributes"`;

export function openExport(runsc: Runsc, freezer: Freezer, spawner: Spawner): (handle: RuntimeHandle, into: string) => Promise<void> {
  return async (handle, into) => {
    const { runtimeID, directory } = handle;
    if (await freezer.isFrozen(handle)) fail("CHECKPOINT_FAILED", `sandbox ${runtimeID} is frozen; its layer can only be written while it runs`);
    const archive = join(directory, "upper.tar");
    try {
      const { code, message } = await runsc.verb(handle, COPY_TIMEOUT_MS, "tar", "rootfs-upper", "-file", archive);
      if (code !== 0) fail("CHECKPOINT_FAILED", message);
      const argv = [
        script,
        "sh",
        archive,
        into,
        directory,
        await runsc.programs.of(directory),
        runsc.stateRoot,
        runtimeID,
        envdPathInside,
        await envdOf(directory),
      ];
      await runCopy(spawner, ["/bin/sh", "-c", ...argv]);
    } finally {
      for (const name of ["upper.tar", "paths", "attributes"]) await rm(join(directory, name), { force: true });
    }
  };
}

/** Returns the path on the host of the envd binary that the sandbox was started with. */
async function envdOf(directory: string): Promise<string> {
  const config = JSON.parse(await readFile(join(directory, "config.json"), "utf8")) as { mounts: { destination: string; source: string }[] };
  const mount = config.mounts.find(({ destination }) => destination === envdPathInside);
  return mount?.source ?? fail("CHECKPOINT_FAILED", `${directory}/config.json names no envd`);
}
