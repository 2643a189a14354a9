// `svc store copy` and `move`: a task for the client that holds the key, watched to its end.
import { setTimeout as sleep } from "node:timers/promises";
import { Failure, fail } from "@svc/contract/failures.ts";
import { printJSON } from "@svc/contract/table.ts";
import type { StoreClient } from "../client/store-client.ts";
import { codes } from "../rpc/codes.ts";
import { type Arguments, openClient, operands, progress } from "./arguments.ts";

const POLL_MS = 100;
/** Exceeds the master's own limits for a pending task and a running one together. */
const MAX_WAIT_MS = 660_000;

export async function copyKey(args: Arguments): Promise<number> {
  const [key = ""] = operands(args, "KEY");
  const targets = segmentsOf(args, "to");
  await using client = await openClient(args);
  return await watch(args, client, key, await client.createCopyTask(key, targets).catch(unknownSegment(targets)));
}

export async function moveKey(args: Arguments): Promise<number> {
  const [key = ""] = operands(args, "KEY");
  const [[source = ""], [target = ""]] = [segmentsOf(args, "from", 1), segmentsOf(args, "to", 1)];
  if (source === target) fail("INVALID_REQUEST", `--to: expected another segment than --from, got ${target} for both`);
  await using client = await openClient(args);
  return await watch(args, client, key, await client.createMoveTask(key, source, target).catch(unknownSegment([source, target])));
}

async function watch(args: Arguments, client: StoreClient, key: string, id: string): Promise<number> {
  const endMs = performance.now() + MAX_WAIT_MS;
  let state = await client.task(id);
  while (state.status === "pending" || state.status === "processing") {
    if (performance.now() > endMs) fail("TIMED_OUT", `task ${id} is ${state.status} after ${MAX_WAIT_MS / 1000} s`);
    progress(`${args.verb} ${key}: ${state.status}, ${Math.round((Date.now() - state.createdAt.getTime()) / 1000)} s`);
    await sleep(POLL_MS);
    state = await client.task(id);
  }
  progress("");
  if (state.status === "failed") fail("STORE_REFUSED", `${args.verb} ${key} failed: ${state.message}`);
  const tookMs = state.updatedAt.getTime() - state.createdAt.getTime();
  if (args.isJSON) printJSON({ task: id, key, status: state.status, tookMs });
  else process.stdout.write(`${args.verb} ${key}: done after ${tookMs} ms\n`);
  return 0;
}

/** Names the segments in the error, since the master reports only that some argument is invalid. */
const unknownSegment = (names: readonly string[]) => (error: unknown) => {
  if (error instanceof Failure && error.details["storeCode"] === codes.INVALID_PARAMS)
    fail("STORE_KEY_NOT_FOUND", `expected names of mounted segments, got "${names.join('", "')}"; svc store segments lists them`, { cause: error });
  throw error;
};

function segmentsOf(args: Arguments, flag: string, most = 64): string[] {
  const names = (args.text(flag) ?? "").split(",").filter((name) => name !== "");
  if (names.length >= 1 && names.length <= most) return names;
  return fail(
    "INVALID_REQUEST",
    `--${flag}: expected ${most === 1 ? "the name of a segment" : "names of segments, joined by commas"}; svc store segments lists them`,
  );
}
