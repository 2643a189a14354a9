// `svc down`: stops the servers of `svc up`; sandboxes keep running, and the next `svc up` takes them over.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { SvcClient } from "@svc/contract/client.ts";
import { fail } from "@svc/contract/failures.ts";
import type { ListedSandbox } from "@svc/contract/sandbox.ts";
import { localKey } from "../access/access.ts";
import { chosenHome } from "../access/home.ts";
import { runningNode } from "../access/own-node.ts";
import { endProcess, isAlive, type ProcessName, readUpState, removeUpState } from "../access/up-state.ts";
import { EXIT_FAILURE, remark } from "../output/complain.ts";
import { collect } from "../output/for-each.ts";
import { removeAll } from "../sandbox/delete.ts";
import { lockHolder } from "./up-lock.ts";

type Options = { home?: string; sandboxes?: true };

/** Longer than the ten seconds in which the servers stop by themselves. */
const STOP_BOUND_MS = 14_000;
/** A server that does not answer in this time is stopped without a count of its sandboxes. */
const COUNT_TIMEOUT_MS = 10_000;

export async function down(options: Options): Promise<number> {
  const home = chosenHome(options.home);
  const state = readUpState(home);
  const holder = await lockHolder(home);
  // If `up` itself was killed, its servers may still be running.
  const left = [...(state?.servers ?? []), ...(state?.starting ?? [])].filter(isAlive);
  const targets: ProcessName[] = holder !== undefined ? [holder] : state !== undefined && isAlive(state) ? [state] : left;
  if (targets.length === 0) {
    if (state !== undefined) removeUpState(home);
    process.stdout.write(`nothing is up on ${home}\n`);
    return 0;
  }
  const client = clientOf(home);
  let sandboxes = await sandboxesOf(clientOf(home, COUNT_TIMEOUT_MS));
  if (options.sandboxes === true && client !== undefined && sandboxes !== undefined) {
    const all = [...new Set([...sandboxes.map(({ sandboxID }) => sandboxID), ...quarantined(home)])];
    const gone = await removeAll(client, all, () => {});
    if (gone < all.length) return EXIT_FAILURE;
    sandboxes = [];
  } else if (options.sandboxes === true) {
    remark(`svc: the sandboxes cannot be listed, so none is deleted: is ${home}/secrets/api-key readable, and does the server answer?`);
    return EXIT_FAILURE;
  }
  const stopOne = async (target: ProcessName) => {
    if (!(await endProcess(target, "SIGTERM", STOP_BOUND_MS)))
      fail("TIMED_OUT", `process ${target.pid} has not stopped within ${STOP_BOUND_MS / 1000} s; its logs are in ${home}/logs`);
  };
  await Promise.all(targets.map(stopOne));
  removeUpState(home);
  process.stdout.write(`down${sandboxes === undefined ? "" : `; ${sentence(sandboxes)}`}\n`);
  const quarantine = quarantined(home);
  if (quarantine.length === 0) return 0;
  remark(
    `svc: quarantined, so that it may still run: ${quarantine.join(", ")}; svc doctor says why, and svc node --destroy-all --home=${home} ends everything`,
  );
  return options.sandboxes === true ? EXIT_FAILURE : 0;
}

/** Returns the sandboxes whose records the node could not read, since they are missing from its list. */
function quarantined(home: string): string[] {
  try {
    const entries = JSON.parse(readFileSync(join(home, "quarantine.json"), "utf8")) as { kind: string; name: string }[];
    return entries.filter(({ kind }) => kind === "sandbox").map(({ name }) => name);
  } catch {
    return [];
  }
}

function sentence(left: readonly ListedSandbox[]): string {
  if (left.length === 0) return "no sandbox is left";
  const paused = left.filter(({ state }) => state === "paused").length;
  const running = left.length - paused;
  const parts = [
    ...(running === 0 ? [] : [`${running === 1 ? "1 sandbox lives on until its" : `${running} sandboxes live on until their`} timeout`]),
    ...(paused === 0 ? [] : [`${paused === 1 ? "1 sandbox stays" : `${paused} sandboxes stay`} paused`]),
  ];
  return `${parts.join(", ")}; the next svc up takes them over`;
}

function clientOf(home: string, timeoutMs?: number): SvcClient | undefined {
  const node = runningNode(home);
  const key = localKey(process.env, home);
  return node === undefined || key === undefined
    ? undefined
    : new SvcClient({ baseURL: node.address, apiKey: key.apiKey, ...(timeoutMs === undefined ? {} : { timeoutMs }) });
}

/** Returns undefined if they cannot be listed, since that must not prevent a server from being stopped. */
async function sandboxesOf(client: SvcClient | undefined): Promise<ListedSandbox[] | undefined> {
  try {
    return client === undefined ? undefined : await collect(client.list());
  } catch {
    return undefined;
  }
}
