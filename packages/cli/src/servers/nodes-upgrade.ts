// `svc nodes upgrade`: replaces the nodes of a deployment one at a time, and continues where an earlier run stopped.
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { SvcClient } from "@svc/contract/client.ts";
import { asFailure, fail } from "@svc/contract/failures.ts";
import type { ShownNode } from "@svc/contract/nodes.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { EXIT_FAILURE, remark, UsageError } from "../output/complain.ts";
import { untilDrained } from "./nodes-drain.ts";

type Options = AccessOptions & { readonly to: string; readonly run: string; readonly timeout: string };

const POLL_MS = 500;
const COMMIT = /^[0-9a-f]{7,40}$/;

/** Returns 0 once every node runs the commit and is ready, and 1 at the first node that could not be replaced. */
export function upgradeNodes({ to, run, timeout, ...access }: Options): Promise<number> {
  if (!COMMIT.test(to)) throw new UsageError(`--to: expected 7 to 40 hexadecimal digits of a commit, got "${to}"`);
  const seconds = Number(timeout);
  if (!(seconds > 0)) throw new UsageError(`--timeout: expected a number of seconds above 0, got "${timeout}"`);
  return withClient(access, async (client) => {
    // A node that an interrupted run left drained goes first, so that one node at most is out of service.
    for (const id of (await pendingOf(client, to)).map((node) => node.id)) {
      try {
        await upgradeNode(client, id, { to, run, boundMs: seconds * 1000 });
      } catch (error) {
        remark(`svc: node ${id} was not upgraded, and no other one is touched: ${asFailure(error).message}`);
        remark("svc: once its cause is gone, the same command goes on with this node; svc nodes undrain gives it up");
        return EXIT_FAILURE;
      }
    }
    remark(`svc: all nodes run ${to}`);
    return 0;
  });
}

async function pendingOf(client: SvcClient, to: string): Promise<ShownNode[]> {
  const nodes = await client.nodes();
  return nodes.filter((node) => !isDone(node, to)).sort((one, other) => Number(other.status === "draining") - Number(one.status === "draining"));
}

const isDone = ({ commit, status }: ShownNode, to: string): boolean => commit.startsWith(to) && status === "ready";

async function upgradeNode(client: SvcClient, id: string, { to, run, boundMs }: { to: string; run: string; boundMs: number }): Promise<void> {
  const all = await client.nodes();
  const node = all.find((each) => each.id === id) ?? fail("NODE_NOT_FOUND", `node '${id}' has left the deployment meanwhile`);
  const unready = all.find((each) => each.id !== id && each.status !== "ready");
  if (unready !== undefined)
    fail(
      "CAPACITY_EXHAUSTED",
      `expected all other nodes to be ready, and ${unready.id} is ${unready.status}${unready.reason === undefined ? "" : `: ${unready.reason}`}`,
    );
  if (!node.commit.startsWith(to)) {
    remark(`svc: node ${id}: draining`);
    await client.setNodeStatus(id, "draining");
    if ((await untilDrained(client, id)) !== 0) fail("CAPACITY_EXHAUSTED", "it could not be drained");
    remark(`svc: node ${id}: replacing ${node.commit.slice(0, 8)}`);
    await replace(run, node);
    await untilNode(
      client,
      id,
      `runs ${to} and answers`,
      boundMs,
      ({ commit, status }) => commit.startsWith(to) && (status === "draining" || status === "ready"),
    );
  }
  const { pausedByDrain } = await client.nodeDrain(id);
  await client.setNodeStatus(id, "ready");
  await untilNode(client, id, "is ready", boundMs, ({ status }) => status === "ready");
  for (const sandboxID of pausedByDrain) await client.resume(sandboxID);
  remark(`svc: node ${id}: ready${pausedByDrain.length === 0 ? "" : `, and ${pausedByDrain.length} sandboxes that the drain had paused run again`}`);
}

async function replace(command: string, { id, url }: ShownNode): Promise<void> {
  const child = spawn("sh", ["-c", command], { stdio: ["ignore", "inherit", "inherit"], env: { ...process.env, SVC_NODE_ID: id, SVC_NODE_URL: url } });
  const [code, signal] = (await once(child, "exit")) as [number | null, string | null];
  if (code !== 0) fail("INTERNAL", `the command of --run ended with ${code ?? signal}`);
}

async function untilNode(client: SvcClient, id: string, what: string, boundMs: number, holds: (node: ShownNode) => boolean): Promise<void> {
  const end = performance.now() + boundMs;
  for (;;) {
    const node = (await client.nodes()).find((each) => each.id === id);
    if (node !== undefined && holds(node)) return;
    const seen =
      node === undefined
        ? "it is not listed"
        : `it runs ${node.commit.slice(0, 8)} and is ${node.status}${node.reason === undefined ? "" : `: ${node.reason}`}`;
    if (performance.now() > end) fail("TIMED_OUT", `expected that it ${what} within ${boundMs / 1000} s, and ${seen}`);
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}
