// `svc store rm`: removes keys by name, by pattern, or all of them.
import { Failure, fail } from "@svc/contract/failures.ts";
import { printJSON } from "@svc/contract/table.ts";
import type { StoreClient } from "../client/store-client.ts";
import { codes } from "../rpc/codes.ts";
import { type Arguments, openClient, progress } from "./arguments.ts";

const BATCH = 1000;

export async function remove(args: Arguments): Promise<number> {
  const { positionals: keys } = args;
  const pattern = args.text("match");
  const ways = [keys.length > 0, pattern !== undefined, args.has("all")].filter(Boolean).length;
  if (ways !== 1)
    fail(
      "INVALID_REQUEST",
      `expected keys, --match PATTERN or --all, got ${ways === 0 ? "none of them" : "more than one of them"}; svc store rm --help shows each`,
    );
  if (keys.includes("")) fail("INVALID_REQUEST", 'expected keys of one character or more, got ""; svc store ls lists them');
  const isForced = args.has("force");
  await using client = await openClient(args);
  if (keys.length === 0) {
    const count = pattern === undefined ? await client.removeAll(isForced) : await removeMatching(client, pattern, isForced);
    if (args.isJSON) printJSON({ removed: count });
    else process.stdout.write(`${count} ${count === 1 ? "key" : "keys"} removed${isForced ? "" : "; leased ones stay (--force)"}\n`);
    return 0;
  }
  const removed: string[] = [];
  const failed: { key: string; error: string }[] = [];
  for (let at = 0; at < keys.length; at += BATCH) {
    const batch = keys.slice(at, at + BATCH);
    const failures = await client.removeBatch(batch, isForced);
    for (const [index, key] of batch.entries()) {
      const failure = failures[index];
      if (failure === undefined) removed.push(key);
      else failed.push({ key, error: failure.message });
    }
    if (keys.length > BATCH) progress(`${removed.length + failed.length} of ${keys.length} keys`);
  }
  if (args.isJSON) printJSON({ removed, failed });
  else for (const key of removed) process.stdout.write(`${key}\n`);
  for (const { error } of failed) process.stderr.write(`svc store rm: ${error}\n`);
  return failed.length === 0 ? 0 : 1;
}

function removeMatching(client: StoreClient, pattern: string, isForced: boolean): Promise<number> {
  return client.removeMatching(pattern, isForced).catch((error: unknown) => {
    // The master reports only that an argument is invalid, and the pattern is the only one.
    if (error instanceof Failure && error.details["storeCode"] === codes.INVALID_PARAMS)
      fail("INVALID_REQUEST", `--match: expected a regular expression without lookaround or back references, got ${JSON.stringify(pattern)}; quote it`);
    throw error;
  });
}
