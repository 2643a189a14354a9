// A sandbox's own layer as one archive, with all that makes files what they are; the arguments of tar that both ways share.

import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { lastWords } from "./driver-failures.ts";

/** Far beyond a disk of 50 MB/s and the largest layer. */
export const COPY_TIMEOUT_MS = 10 * 60_000;

/** @throws CHECKPOINT_FAILED with what the script said last. */
export async function runCopy(spawner: Spawner, argv: readonly string[]): Promise<void> {
  const { code, signal, stderr } = await spawner.run(argv, { timeoutMs: COPY_TIMEOUT_MS });
  if (code !== 0) fail("CHECKPOINT_FAILED", `copying its files ended with ${code ?? signal}: ${lastWords(stderr)}`);
}

/** Made by the node for each sandbox; never part of a template. */
const identity = ["hostname", "hosts", "resolv.conf", "machine-id"].map((name) => `--exclude=./etc/${name}`).join(" ");

/** The kernel's notes on where a file was copied from; they are true for one mount only. */
const local = "--xattrs-exclude=trusted.overlay.origin --xattrs-exclude=trusted.overlay.impure --xattrs-exclude=trusted.overlay.uuid";

const attributes = "--acls --xattrs --xattrs-include='*'";
const owners = "--numeric-owner --preserve-permissions --same-owner";

/** Shell: $1 an archive to be, $2 a layer's directory. Sparse files stay sparse, so that an archive is as large as what was written. */
export const packScript = `tar --create --file="$1" --directory="$2" --numeric-owner --sparse ${attributes} ${local} .`;

/** Shell: $1 such an archive, $2 an empty directory. */
export const unpackScript = `tar --extract --file="$1" --directory="$2" ${owners} ${attributes}`;

/**
 * Shell: $1 runsc's archive, $2 an empty directory. Of attributes only the mark of replaced directories; and identity files are
 * left out here rather than removed later: /etc inside may be a link to elsewhere.
 */
export const unpackForeignScript = `tar --extract --file="$1" --directory="$2" ${owners} --anchored ${identity} --xattrs --xattrs-include='trusted.overlay.opaque'`;

/** Shell: $1 a layer in use, $2 an empty directory. The first tar's failure must not be lost in the pipe. */
export const copyScript = `failed=$( { {
  tar --create --file=- --directory="$1" --numeric-owner --sparse --anchored ${identity} ${attributes} ${local} . || echo "$?" >&3
} | tar --extract --file=- --directory="$2" ${owners} ${attributes} >&2 || echo "$?" >&3; } 3>&1 )
[ -z "$failed" ]`;
