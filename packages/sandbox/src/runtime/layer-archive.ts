// Archives a sandbox's own layer with all file attributes; both directions share the arguments of tar.

import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { endOfOutput } from "./driver-failures.ts";

/** Ample for a disk of 50 MB/s and the largest layer. */
export const COPY_TIMEOUT_MS = 10 * 60_000;

/** @throws CHECKPOINT_FAILED with the end of the script's output. */
export async function runCopy(spawner: Spawner, argv: readonly string[]): Promise<void> {
  const { code, signal, stderr } = await spawner.run(argv, { timeoutMs: COPY_TIMEOUT_MS });
  if (code !== 0) fail("CHECKPOINT_FAILED", `copying its files ended with ${code ?? signal}: ${endOfOutput(stderr)}`);
}

/** The node writes these files for each sandbox; they are never part of a template. */
const identity = ["hostname", "hosts", "resolv.conf", "machine-id"].map((name) => `--exclude=./etc/${name}`).join(" ");

/** The kernel's notes about a file's origin; they are valid for one mount only. */
const local = "--xattrs-exclude=trusted.overlay.origin --xattrs-exclude=trusted.overlay.impure --xattrs-exclude=trusted.overlay.uuid";

const attributes = "--acls --xattrs --xattrs-include='*'";
const owners = "--numeric-owner --preserve-permissions --same-owner";

/** Shell: $1 is the archive to write, $2 a layer's directory. Sparse files stay sparse, so an archive is as large as the written data. */
export const packScript = `tar --create --file="$1" --directory="$2" --numeric-owner --sparse ${attributes} ${local} .`;

/** Shell: $1 is such an archive, $2 an empty directory. */
export const unpackScript = `tar --extract --file="$1" --directory="$2" ${owners} ${attributes}`;

/**
 * Shell: $1 is runsc's archive, $2 an empty directory. The only attribute unpacked is the mark of replaced directories. Identity files are
 * excluded here instead of removed later, since /etc inside may be a link to another directory.
 */
export const unpackForeignScript = `tar --extract --file="$1" --directory="$2" ${owners} --anchored ${identity} --xattrs --xattrs-include='trusted.overlay.opaque'`;

/** Shell: $1 is a layer in use, $2 an empty directory. The script reports a failure of the first tar, which the pipe would hide. */
export const copyScript = `failed=$( { {
  tar --create --file=- --directory="$1" --numeric-owner --sparse --anchored ${identity} ${attributes} ${local} . || echo "$?" >&3
} | tar --extract --file=- --directory="$2" ${owners} ${attributes} >&2 || echo "$?" >&3; } 3>&1 )
[ -z "$failed" ]`;
