// `svc store put` and `get`: one value, from and to a file or a pipe.
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { byteSize, printJSON } from "@svc/contract/table.ts";
import type { StoreClient } from "../client/store-client.ts";
import { type Arguments, openClient, operands, wholeNumber } from "./arguments.ts";
import { segmentDetails } from "./segments.ts";

const MAX_REPLICAS = 64;
/** The maximum number of segment names in an error message. */
const SHOWN_NAMES = 10;
/** Bounds the memory for a value, which is read whole before it is stored. */
const MAX_VALUE_BYTES = 2 ** 31;
/** Smaller values are stored without a look at the segments first. */
const LARGE_BYTES = 2 ** 24;

export async function put(args: Arguments): Promise<number> {
  const [key = "", file] = operands(args, "KEY", "[FILE]");
  if (/[\r\n]/.test(key)) fail("INVALID_REQUEST", "KEY: expected no line breaks, since key lists have one key per line");
  const replicas = wholeNumber(args, "replicas", 1, MAX_REPLICAS);
  const nofReplicas = args.text("nof-replicas") === undefined ? 0 : wholeNumber(args, "nof-replicas", 0, MAX_REPLICAS);
  const segment = args.text("segment");
  if (segment !== undefined) await checkSegment(args, segment);
  const value = file === undefined || file === "-" ? await readStdin() : readWhole(file);
  if (value.length === 0) fail("INVALID_REQUEST", "expected a value of one byte or more, got an empty one; give a file, or write the value to stdin");
  await checkFits(args, value.length);
  const options = {
    replicas,
    ...(nofReplicas === 0 ? {} : { nofReplicas }),
    ...(segment === undefined ? {} : { preferredSegments: [segment] }),
    ...(args.has("soft-pin") ? { softPin: "enable" as const } : {}),
    ...(args.has("hard-pin") ? { hardPin: true } : {}),
  };
  await using client = await openClient(args);
  let isStored = true;
  if (args.has("upsert")) await client.upsert(key, value, options);
  else isStored = await client.put(key, value, options);
  const segments = await holdersOf(client, key);
  if (args.isJSON) printJSON({ key, ...(isStored ? { sizeBytes: value.length } : {}), stored: isStored, ...(segments === undefined ? {} : { segments }) });
  const kept = `${key} is there already and keeps its value; --upsert replaces it\n`;
  if (!isStored && args.isJSON) process.stderr.write(`svc store put: ${kept}`);
  else if (!isStored) process.stdout.write(kept);
  else if (!args.isJSON) process.stdout.write(`${key}: ${byteSize(value.length)} stored${segments === undefined ? "" : ` on ${segments.join(", ")}`}\n`);
  if (isStored && segments !== undefined) warn(segments, replicas + nofReplicas, segment);
  return 0;
}

/** Refuses a large value that no segment could hold, before it is copied and hashed. Segments that cannot be listed are left to the master. */
async function checkFits(args: Arguments, bytes: number): Promise<void> {
  if (bytes < LARGE_BYTES) return;
  const rows = await segmentDetails(args).catch(() => []);
  const largest = Math.max(0, ...rows.map((row) => row.size_bytes));
  if (rows.length === 0 || bytes <= largest) return;
  fail("CAPACITY_EXHAUSTED", `expected a value that one segment can hold, at most ${byteSize(largest)} here, got ${byteSize(bytes)}: store it in parts`);
}

/** Only warns, since the value is stored all the same. */
function warn(segments: readonly string[], replicas: number, segment: string | undefined): void {
  const say = (what: string) => process.stderr.write(`svc store put: ${what}; svc store segments shows how full they are\n`);
  if (segments.length < replicas) say(`expected ${replicas} replicas, placed ${segments.length}: no other segment has room for one`);
  if (segment !== undefined && !segments.includes(segment)) say(`segment ${segment} had no room`);
}

/** A preferred segment that does not exist is a mistake. Without permission to list the segments the check is skipped. */
async function checkSegment(args: Arguments, name: string): Promise<void> {
  const rows = await segmentDetails(args).catch((error: unknown) => {
    if (asFailure(error).name === "ACCESS_DENIED") return undefined;
    throw error;
  });
  const names = [...new Set(rows?.map((row) => row.segment_name))];
  if (rows === undefined || names.includes(name)) return;
  const there = names.length === 0 ? "none is mounted" : `mounted are ${names.slice(0, SHOWN_NAMES).join(", ")}${names.length > SHOWN_NAMES ? ", ..." : ""}`;
  fail("STORE_KEY_NOT_FOUND", `--segment: expected the name of a segment, got ${JSON.stringify(name)}: ${there}; svc store segments lists them`);
}

/** Returns undefined if the master does not report holders (another implementation may not): the value is stored in any case. */
const holdersOf = (client: StoreClient, key: string): Promise<readonly string[] | undefined> => client.holders(key).catch(() => undefined);

export async function get(args: Arguments): Promise<number> {
  const [key = "", file] = operands(args, "KEY", "[FILE]");
  const isFile = file !== undefined && file !== "-";
  if (isFile && !args.has("force") && statSync(file, { throwIfNoEntry: false })?.isFile() === true)
    fail("INVALID_REQUEST", `${file} already exists: use --force to replace it, or another name`);
  await using client = await openClient(args);
  const value = await client.get(key);
  if (value === undefined) return fail("STORE_KEY_NOT_FOUND", await whyMissing(args, client, key));
  if (isFile) {
    writeWhole(file, value, args.has("force"));
    process.stderr.write(`${byteSize(value.length)} written to ${file}\n`);
  } else await new Promise<void>((resolve, reject) => process.stdout.write(value, (error) => (error ? reject(error) : resolve())));
  return 0;
}

/** Returns a sentence for the user, with the reason if the master remembers it. */
export async function whyMissing(args: Arguments, client: StoreClient, key: string): Promise<string> {
  const { reason, at } = await client.whyMissing(key);
  if (reason === "holder_away") {
    const why = (await isAwaited(args, client, key)) ? "is not back yet since the master's restart" : "does not answer";
    return `key ${key} cannot be read yet: its holder ${why}; try again in a few seconds`;
  }
  if (reason === "stored") return `key ${key} is readable again: try again`;
  return `key ${key} is not there: ${reason.replaceAll("_", " ")}${at === undefined ? "" : ` at ${at.toISOString()}`}`;
}

/** Reports whether a holder of the key may still come back; false where the master does not say. */
async function isAwaited(args: Arguments, client: StoreClient, key: string): Promise<boolean> {
  const [holders = [], rows = []] = await Promise.all([holdersOf(client, key), segmentDetails(args).catch(() => [])]);
  return rows.some((row) => row.awaited === true && holders.includes(row.segment_name));
}

function readWhole(file: string): Buffer {
  try {
    const size = statSync(file).size;
    if (size > MAX_VALUE_BYTES)
      return fail(
        "INVALID_REQUEST",
        `${file}: expected at most ${byteSize(MAX_VALUE_BYTES)}, got ${byteSize(size)}: store it in parts, each under its own key`,
      );
    return readFileSync(file);
  } catch (error) {
    if (error instanceof Failure) throw error;
    return fail("INVALID_REQUEST", `${file}: ${(error as Error).message}`, { cause: error });
  }
}

function writeWhole(file: string, value: Buffer, replaces: boolean): void {
  try {
    // A special file (a pipe, a device) is written as it is; a regular file that appeared meanwhile is kept.
    const isSpecial = statSync(file, { throwIfNoEntry: false })?.isFile() === false;
    writeFileSync(file, value, { flag: replaces || isSpecial ? "w" : "wx" });
  } catch (error) {
    fail("INVALID_REQUEST", `${file}: ${(error as Error).message}`, { cause: error });
  }
}

async function readStdin(): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of process.stdin as AsyncIterable<Buffer>) {
    bytes += part.length;
    if (bytes > MAX_VALUE_BYTES) fail("INVALID_REQUEST", `stdin: the value is longer than ${byteSize(MAX_VALUE_BYTES)}`);
    parts.push(part);
  }
  return Buffer.concat(parts);
}
