// A deployment of 5,000 nodes and a million sandboxes behind 20 gateways in virtual time; and what one gateway computes by number of nodes.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { getHeapStatistics } from "node:v8";
import { clusterFrame } from "@svc/contract/cluster.ts";
import { type ScaleOptions, simulateScale } from "../packages/gateway/test/scale.ts";
import { SimulatedNode } from "../packages/gateway/test/scale-node.ts";
import { progress, type Row, report } from "./report.ts";

const full: ScaleOptions = {
  nodes: 5_000,
  gateways: 20,
  running: 100_000,
  paused: 900_000,
  createsPerSecond: 200,
  resumesPerSecond: 100,
  maxSandboxes: 40,
  seconds: 100,
  zoneLostAtSecond: 30,
  zoneBackAtSecond: 85,
  seed: 1,
  onProgress: progress,
};
const BEATS_PER_SECOND = 5;
const SIZES = [500, 1_000, 2_500, 5_000, 10_000];

/** The real microseconds that a gateway needs to parse and check one beat. */
function beatMicroseconds(): number {
  const line = JSON.stringify({ kind: "beat", load: new SimulatedNode(1, 1, 40).load(20) });
  const parse = (rounds: number) => {
    const beganMs = performance.now();
    for (let round = 0; round < rounds; round++) clusterFrame.parse(JSON.parse(line));
    return ((performance.now() - beganMs) / rounds) * 1000;
  };
  parse(20_000);
  return parse(100_000);
}

/** One process has the registries of 20 gateways, which do not fit into Node's default heap, and the limit can only be set at the start. */
const HEAP_MB = 12_000;
if (getHeapStatistics().heap_size_limit < HEAP_MB * 2 ** 20) {
  const again = spawnSync(process.execPath, [`--max-old-space-size=${HEAP_MB}`, fileURLToPath(import.meta.url)], { stdio: "inherit" });
  process.exit(again.status ?? 1);
}

const rows: Row[] = [];
const raw: Record<string, unknown> = {};
const beatUs = beatMicroseconds();
rows.push({ what: "one beat of a node, parsed and checked", value: beatUs, unit: "µs" });
for (const nodes of SIZES) {
  const { placeMs, createCostMs } = await simulateScale({
    ...full,
    nodes,
    gateways: 1,
    running: nodes * 20,
    paused: 0,
    seconds: 1,
    zoneLostAtSecond: 9,
    zoneBackAtSecond: 9,
  });
  const beats = (nodes * BEATS_PER_SECOND * beatUs) / 1e6;
  const creates = ((full.createsPerSecond / full.gateways) * createCostMs) / 1000;
  rows.push({ what: `${nodes} nodes: one placement`, value: placeMs, unit: "ms" });
  rows.push({ what: `${nodes} nodes: a create until it is sent to a node`, value: createCostMs, unit: "ms" });
  rows.push({
    what: `${nodes} nodes: share of a core of each of 20 gateways`,
    value: beats + creates,
    unit: "cores",
    note: `beats ${beats.toFixed(2)}, 10 creates/s ${creates.toFixed(2)}`,
  });
  raw[`place-${nodes}`] = { placeMs, createCostMs, beats, creates };
}
progress("the whole deployment");
const whole = await simulateScale(full);
raw["whole"] = whole;
rows.push(
  { what: "events of the virtual clock", value: whole.events, unit: "" },
  { what: "frames taken by gateways", value: whole.frames, unit: "" },
  { what: "wall time", value: whole.wallSeconds, unit: "s", note: `${full.seconds} s of virtual time` },
  { what: "heap of all 20 gateways and the nodes", value: whole.heapMB, unit: "MiB" },
  { what: "creates", value: whole.created, unit: "", note: JSON.stringify(whole.outcomes) },
  { what: "creates that failed", value: Object.values(whole.failed).reduce((sum, each) => sum + each, 0), unit: "", note: JSON.stringify(whole.failed) },
  { what: "create p50", value: whole.createMs.p50, unit: "ms", note: "virtual; a node needs 150 ms and more" },
  { what: "create p99", value: whole.createMs.p99, unit: "ms" },
  { what: "creates refused by a full node, and sent to the next", value: whole.refusedByNodes, unit: "" },
  { what: "sandboxes beyond a node's limit", value: Math.max(0, whole.mostOverLimit), unit: "", goal: { atMost: 0 } },
  { what: "paused sandboxes attributed to a wrong node", value: whole.wrongOwners, unit: "", goal: { atMost: 0 } },
  { what: "resumes sent to a wrong node", value: whole.resumesMisrouted, unit: "", goal: { atMost: 0 }, note: `of ${whole.resumed}` },
  { what: "running sandboxes lost with the zone", value: whole.lostRunning, unit: "" },
  { what: "most and fewest on a node before the loss", value: whole.spreadBefore[0], unit: "", note: `fewest ${whole.spreadBefore[1]}` },
  { what: "most and fewest on a node at the end", value: whole.spreadAfter[0], unit: "", note: `fewest ${whole.spreadAfter[1]}` },
  { what: "one gateway takes the states of the returned zone", value: whole.zoneStatesMs, unit: "ms" },
);
report("scale", rows, raw);
