// A home with records, checkpoints and databases but no sandboxes: for tests of backups that are killed, damaged or out of space.
import { createHash, randomBytes } from "node:crypto";
import { closeSync, lstatSync, mkdirSync, openSync, readdirSync, readFileSync, readSync, truncateSync, utimesSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { openLog } from "@svc/kit/log.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { openCheckpoints } from "../src/records/checkpoints.ts";
import { openRecords } from "../src/records/records.ts";
import { handle, recordWith } from "./record-fixture.ts";

export const MIB = 2 ** 20;
const MADE_AT_ONCE = 32;
const quarantine = { addUnreadable: () => {} };

export type MadeHome = { readonly checkpointIDs: readonly string[] };

/** Each checkpoint has a file of random bytes and a sealed file that is mostly a hole. */
export async function makeBackedUpHome(home: string, checkpointMB: number, checkpoints = 2): Promise<MadeHome> {
  mkdirSync(join(home, "secrets"), { recursive: true, mode: 0o700 });
  writeFileSync(join(home, "secrets/api-key"), `sdk_${"a".repeat(64)}`, { mode: 0o600 });
  writeFileSync(join(home, "node-id"), "node-backed-up");
  // A backup leaves out the folders that a start makes.
  for (const name of ["run", "logs"]) mkdirSync(join(home, name));
  writeFileSync(join(home, "logs/i1.jsonl"), "{}\n");
  const spawner = openSpawner();
  const records = openRecords(join(home, "sandboxes.db"), { quarantine });
  const opened = await openCheckpoints(join(home, "snapshots"), spawner, openLog("test", "fatal"));
  const checkpointIDs: string[] = [];
  const make = async (number: number) => {
    const checkpointID = opened.newID();
    checkpointIDs.push(checkpointID);
    const origin = { templateID: "base", envd: "envd-0", envdVersion: "0.6.13" };
    await opened.take(
      checkpointID,
      "filesystem",
      "runc",
      async ({ directory }) => {
        writeFileSync(join(directory, "pages.img"), randomBytes(checkpointMB * MIB));
        writeFileSync(join(directory, "sealed-000000.img"), "sealed");
        truncateSync(join(directory, "sealed-000000.img"), 1024 * MIB);
        utimesSync(join(directory, "sealed-000000.img"), 1_700_000_000.123, 1_700_000_000.123_456);
      },
      origin,
    );
    records.put(recordWith({ state: "warm", handle }, `i${number}`));
  };
  for (let number = 0; number < checkpoints; number += MADE_AT_ONCE)
    await Promise.all(Array.from({ length: Math.min(MADE_AT_ONCE, checkpoints - number) }, (_, at) => make(number + at)));
  await opened.close();
  records.close();
  await spawner[Symbol.asyncDispose]();
  return { checkpointIDs };
}

/** Returns each file of a home that a backup has, with its size, time and content. */
export function contentOf(home: string): Record<string, string> {
  const found: Record<string, string> = {};
  const walk = (folder: string) => {
    for (const entry of readdirSync(folder, { withFileTypes: true })) {
      const path = join(folder, entry.name);
      const name = relative(home, path);
      if (["run", "logs", "lost+found"].includes(name)) continue;
      if (entry.isDirectory()) walk(path);
      else {
        const { size, mtimeNs, mode } = lstatSync(path, { bigint: true });
        const digest = name.includes("/sealed-") ? headOf(path) : readFileSync(path);
        // Only checkpoints are checked by their times.
        found[name] = `${size} ${mode} ${name.startsWith("snapshots/") ? mtimeNs : ""} ${createHash("sha256").update(digest).digest("hex")}`;
      }
    }
  };
  walk(home);
  return found;
}

/** The rest of a sealed file is a hole. */
function headOf(path: string): Buffer {
  const file = openSync(path, "r");
  try {
    const head = Buffer.alloc(4096);
    return head.subarray(0, readSync(file, head));
  } finally {
    closeSync(file);
  }
}
