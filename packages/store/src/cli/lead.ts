// `svc store leader`, `standbys` and `lead`: which of several masters leads, which would take over, and handing over leadership.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import { printJSON } from "@svc/contract/table.ts";
import { ask, operands, print, type Words } from "./words.ts";

/** The bound within which the new leader serves; by then the old one is usually a standby again. */
const LEADS_MS = 10_000;
const POLL_MS = 20;

type View = {
  name: string;
  role: string;
  state: string;
  reason: string;
  epoch: number;
  leader: { name: string; rpc: string; http: string } | null;
  in_sync: string[];
  standbys: { name: string; state: string; in_sync: boolean; lag: number; rpc: string; http: string }[];
};

async function viewAt(words: Words): Promise<View> {
  return (await (await ask(words, "/api/v1/ha")).json()) as View;
}

/** Follows the given master's pointer to its leader, so that any master of the cluster may be named. */
async function leaderOf(words: Words): Promise<{ words: Words; view: View }> {
  const view = await viewAt(words);
  if (view.role === "leader") return { words, view };
  const { leader } = view;
  if (leader === null) return fail("SERVER_UNREACHABLE", `${view.name} is ${view.state} and knows no leader; check that etcd and another master are running`);
  const there = { ...words, url: leader.http };
  return { words: there, view: await viewAt(there) };
}

export async function leader(words: Words): Promise<number> {
  operands(words);
  const { view } = await leaderOf(words);
  if (words.isJSON) {
    printJSON(view);
    return 0;
  }
  const trouble = view.reason === "" ? "" : `; ${view.reason}`;
  process.stdout.write(
    `${view.name} leads (${view.state}) at ${view.leader?.rpc ?? "?"}, epoch ${view.epoch}, in sync: ${view.in_sync.join(", ") || "nobody"}${trouble}\n`,
  );
  return 0;
}

export async function standbys(words: Words): Promise<number> {
  operands(words);
  const { view } = await leaderOf(words);
  const rows = view.standbys.map(({ name, state, in_sync, lag, rpc, http }) => [name, in_sync ? "yes" : "no", state, String(lag), rpc, http]);
  print(words, view.standbys, ["NAME", "IN SYNC", "STATE", "RECORDS BEHIND", "RPC", "HTTP"], rows);
  return 0;
}

export async function lead(words: Words): Promise<number> {
  operands(words);
  const to = words.text("to") ?? fail("INVALID_REQUEST", "expected --to NAME; svc store standbys lists them");
  const { words: there, view } = await leaderOf(words);
  if (to === view.name) {
    if (words.isJSON) printJSON(view.leader);
    else process.stdout.write(`${to} leads already at ${view.leader?.rpc ?? "?"}\n`);
    return 0;
  }
  const answer = await ask(there, `/api/v1/lead?to=${encodeURIComponent(to)}`, { method: "POST" });
  const said = (await answer.json()) as { error_message?: string; leader: { name: string; rpc: string; http: string } };
  if (!answer.ok) return fail("STORE_KEY_NOT_FOUND", `the master answered: ${said.error_message}`);
  const endMs = performance.now() + LEADS_MS;
  for (;;) {
    const now = await viewAt({ ...words, url: said.leader.http }).catch(() => undefined);
    if (now?.role === "leader" && now.state === "serving") break;
    if (performance.now() > endMs)
      fail("TIMED_OUT", `${to} got the lead from ${view.name} but did not serve within ${LEADS_MS} ms; svc store leader shows the leader`);
    await sleep(POLL_MS);
  }
  if (words.isJSON) printJSON(said.leader);
  else process.stdout.write(`${said.leader.name} leads at ${said.leader.rpc}; ${view.name} begins anew as a standby\n`);
  return 0;
}
