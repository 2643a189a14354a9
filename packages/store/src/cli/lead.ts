// `svc store leader`, `standbys` and `lead`: which of several masters leads, which would take over, and handing over leadership.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import { printJSON } from "@svc/contract/table.ts";
import { type Arguments, ask, operands, print } from "./arguments.ts";

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

async function viewAt(args: Arguments): Promise<View> {
  return (await (await ask(args, "/api/v1/ha")).json()) as View;
}

/** Follows the given master's pointer to its leader, so that any master of the cluster may be named. */
async function leaderOf(args: Arguments): Promise<{ args: Arguments; view: View }> {
  const view = await viewAt(args);
  if (view.role === "leader") return { args, view };
  const { leader } = view;
  if (leader === null) return fail("SERVER_UNREACHABLE", `${view.name} is ${view.state} and knows no leader; check that etcd and another master are running`);
  const there = { ...args, url: leader.http };
  return { args: there, view: await viewAt(there) };
}

export async function leader(args: Arguments): Promise<number> {
  operands(args);
  const { view } = await leaderOf(args);
  if (args.isJSON) {
    printJSON(view);
    return 0;
  }
  const trouble = view.reason === "" ? "" : `; ${view.reason}`;
  process.stdout.write(
    `${view.name} leads (${view.state}) at ${view.leader?.rpc ?? "?"}, epoch ${view.epoch}, in sync: ${view.in_sync.join(", ") || "none"}${trouble}\n`,
  );
  return 0;
}

export async function standbys(args: Arguments): Promise<number> {
  operands(args);
  const { view } = await leaderOf(args);
  const rows = view.standbys.map(({ name, state, in_sync, lag, rpc, http }) => [name, in_sync ? "yes" : "no", state, String(lag), rpc, http]);
  print(args, view.standbys, ["NAME", "IN SYNC", "STATE", "RECORDS BEHIND", "RPC", "HTTP"], rows);
  return 0;
}

export async function lead(args: Arguments): Promise<number> {
  operands(args);
  const to = args.text("to") ?? fail("INVALID_REQUEST", "expected --to NAME; svc store standbys lists them");
  const { args: there, view } = await leaderOf(args);
  if (to === view.name) {
    if (args.isJSON) printJSON(view.leader);
    else process.stdout.write(`${to} leads already at ${view.leader?.rpc ?? "?"}\n`);
    return 0;
  }
  const answer = await ask(there, `/api/v1/lead?to=${encodeURIComponent(to)}`, { method: "POST" });
  const said = (await answer.json()) as { error_message?: string; leader: { name: string; rpc: string; http: string } };
  if (!answer.ok) return fail("STORE_KEY_NOT_FOUND", `the master answered: ${said.error_message}`);
  const endMs = performance.now() + LEADS_MS;
  for (;;) {
    const now = await viewAt({ ...args, url: said.leader.http }).catch(() => undefined);
    if (now?.role === "leader" && now.state === "serving") break;
    if (performance.now() > endMs)
      fail("TIMED_OUT", `${to} got the lead from ${view.name} but did not serve within ${LEADS_MS} ms; svc store leader shows the leader`);
    await sleep(POLL_MS);
  }
  if (args.isJSON) printJSON(said.leader);
  else process.stdout.write(`${said.leader.name} leads at ${said.leader.rpc}; ${view.name} restarts as a standby\n`);
  return 0;
}
