// Runs in a network namespace of its own under a load of puts: the stream of two masters is cut silently, and a leader's host vanishes.
import { execFileSync } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { startRelay } from "@svc/harness/relay.ts";
import { until } from "@svc/harness/until.ts";
import { type HaNode, startCluster } from "./ha-cluster.ts";
import { type Fault, faultRound, promptFlags } from "./ha-rounds.ts";

execFileSync("ip", ["link", "set", "lo", "up"]);
const nft = (...words: string[]) => execFileSync("nft", words);
nft("add", "table", "ip", "cut");
nft("add", "chain", "ip", "cut", "in", "{ type filter hook input priority 0 ; }");
const drop = (ports: readonly (number | string)[]) => {
  for (const port of ports) for (const side of ["dport", "sport"]) nft("add", "rule", "ip", "cut", "in", "tcp", side, String(port), "drop");
};
const heal = () => nft("flush", "chain", "ip", "cut", "in");
const streamOf = async (leader: HaNode) => new URL(`tcp://${(await leader.ha()).leader?.stream}`).port;

const seed = Number(process.argv[2]);
// Each master reaches etcd through a port of its own, which can be cut like the others.
const relays = new Map<string, Awaited<ReturnType<typeof startRelay>>>();
const names = ["ada", "bob"];
await using cluster = await startCluster({
  flags: promptFlags,
  level: "warn",
  async prepare(etcd) {
    for (const name of names) relays.set(name, await startRelay(Number(new URL(etcd.endpoints[0] as string).port)));
  },
  endpoints: (_etcd, name) => [`http://127.0.0.1:${relays.get(name)?.port}`],
});

const cut: Fault = {
  name: "cut",
  async strike(_cluster, leader) {
    drop([await streamOf(leader)]);
    await sleep(2_500);
    heal();
  },
};
let tookMs = 0;
const vanish: Fault = {
  name: "vanished host",
  async strike({ nodes }, leader) {
    const other = nodes.find((node) => node !== leader) as HaNode;
    // Only the HTTP page remains reachable, by which this test watches the leader.
    drop([await streamOf(leader), leader.rpcPort, relays.get(leader.name)?.port as number]);
    const fromMs = performance.now();
    await until("the standby leads", async () => ((await other.ha()).state === "serving" ? true : undefined));
    tookMs = Math.round(performance.now() - fromMs);
    await sleep(1_000);
    heal();
  },
};

let judged = 0;
for (const [round, fault] of [cut, cut, vanish].entries()) judged += await faultRound(cluster, fault, seed + round);
for (const relay of relays.values()) await relay[Symbol.asyncDispose]();
process.stdout.write(`${JSON.stringify({ judged, tookMs })}\n`);
