// Simulates concurrent creates through several gateways to nodes without processes, with the gateways' own member state and placement.
import type { NodeLoad, SandboxIDs, StateFrame } from "@svc/contract/cluster.ts";
import type { Target } from "@svc/kit/proxy/target.ts";
import { Member } from "../src/members/member.ts";
import { place, type Rules } from "../src/place/place.ts";
import { Heap, mulberry } from "./fleet.ts";

export type BurstOptions = {
  readonly seed: number;
  readonly nodes: number;
  /** The number of creates that each gateway gets. */
  readonly gateways: readonly number[];
  /** All creates arrive within this time. */
  readonly withinMs: number;
  /** A node reads and reports once per tick of its event loop, which takes up to this long. */
  readonly slowestTurnMs: number;
  readonly rules: Rules;
};

const CONCURRENCY = 4;
const BEAT_MS = 200;
const START_MS = 400;
const GIB = 2 ** 30;

type Node = {
  readonly nodeID: string;
  readonly turnMs: () => number;
  /** Messages that were sent and not read yet. */
  readonly inbox: (() => void)[];
  readonly queue: (() => void)[];
  readonly running: string[];
  starting: number;
  busy: number;
  saidMs: number;
  /** Started sandboxes that the gateways have not been notified of yet. */
  changed: string[];
  answers: (() => void)[];
};

/** Returns the number of sandboxes on each node once all have started. */
export function runBurst({ seed, nodes: count, gateways, withinMs, slowestTurnMs, rules }: BurstOptions): number[] {
  const random = mulberry(seed);
  const events = new Heap();
  let nowMs = 0;
  const at = (ms: number, run: () => void) => events.push({ atMs: nowMs + ms, run });
  const nodes = Array.from({ length: count }, (_, index): Node => {
    // Each node has its own load, and so its own longest tick.
    const slowest = slowestTurnMs * (0.1 + 0.9 * random());
    return { ...emptyNode(`node-${index}`), turnMs: () => 2 + random() * slowest };
  });
  const views = gateways.map(() => nodes.map((node) => memberOf(node, gateways.length)));
  let left = gateways.reduce((sum, each) => sum + each, 0);

  function startNext(node: Node): void {
    while (node.busy < CONCURRENCY && node.queue.length > 0) {
      node.busy++;
      at(START_MS * (0.5 + random()), node.queue.shift() as () => void);
    }
  }

  /** The node reads its messages, then reports what has changed to all gateways at once. */
  function turn(node: Node): void {
    for (const read of node.inbox.splice(0)) read();
    startNext(node);
    const members = views.map((view) => view[nodes.indexOf(node)] as Member);
    for (const id of node.changed.splice(0)) for (const member of members) member.running.add(id);
    for (const answer of node.answers.splice(0)) answer();
    if (nowMs - node.saidMs >= BEAT_MS) {
      node.saidMs = nowMs;
      for (const member of members) member.load = loadOf(node, gateways.length);
    }
    if (left > 0) at(node.turnMs(), () => turn(node));
  }

  function create(gateway: number, id: string): void {
    const view = views[gateway] as Member[];
    const chosen = place(
      view.map((member) => member.candidate()),
      { templateID: "base" },
      rules,
    ).candidates[0];
    const index = nodes.findIndex(({ nodeID }) => nodeID === chosen?.nodeID);
    const [node, member] = [nodes[index], view[index]];
    if (node === undefined || member === undefined) throw new Error("no node may take it");
    member.creating++;
    node.inbox.push(() => {
      node.starting++;
      node.queue.push(() => {
        node.starting--;
        node.busy--;
        node.running.push(id);
        node.changed.push(id);
        node.answers.push(() => {
          member.creating--;
          left--;
        });
        startNext(node);
      });
    });
  }

  gateways.forEach((creates, gateway) => {
    for (let index = 0; index < creates; index++) at(random() * withinMs, () => create(gateway, `${gateway}-${index}`));
  });
  for (const node of nodes) at(node.turnMs(), () => turn(node));
  for (let event = events.pop(); event !== undefined; event = events.pop()) {
    nowMs = event.atMs;
    event.run();
  }
  return nodes.map(({ running }) => running.length);
}

function emptyNode(nodeID: string): Omit<Node, "turnMs"> {
  return { nodeID, inbox: [], queue: [], running: [], starting: 0, busy: 0, saidMs: -BEAT_MS, changed: [], answers: [] };
}

function loadOf({ starting, busy }: Pick<Node, "starting" | "busy">, gateways: number): NodeLoad {
  return {
    starting,
    waiting: starting - busy,
    pools: {},
    memory: { totalBytes: 64 * GIB, availableBytes: 60 * GIB, reservedBytes: 0, usedBytes: 0 },
    allocatedCPU: 0,
    cpuPercent: 0,
    disk: { totalBytes: 0, usedBytes: 0 },
    isDraining: false,
    gateways,
  };
}

function memberOf({ nodeID }: Node, gateways: number): Member {
  const member = new Member(`http://${nodeID}`, {} as Target);
  const none: SandboxIDs = { running: [], paused: [], gone: [], leaving: [], owned: {} };
  const base = {
    templateID: "base",
    names: ["base"],
    kind: "template" as const,
    isReady: true,
    memoryMB: 64,
    cpuCount: 1,
    diskSizeMB: 1024,
    builds: [],
    isOffered: false,
    createdAtMs: 0,
  };
  const state: StateFrame = {
    kind: "state",
    version: 1,
    node: {
      nodeID,
      generation: 1,
      version: "1",
      fingerprints: { apiKey: "", seed: "" },
      cpuClass: "x86-64-v3",
      labels: {},
      maxSandboxes: 500,
      runtime: "bubblewrap",
      machine: { cpuCount: 2, cpuArchitecture: "", cpuFamily: "", cpuModel: "", cpuModelName: "" },
      fetchesFromNodes: false,
      commit: "",
      runsc: "",
      schema: "",
      settlesNames: true,
      settlesWebhooks: true,
      settlesSecrets: false,
      settlesPreviews: false,
      hasVolumes: true,
      endsSandboxes: true,
    },
    load: loadOf({ starting: 0, busy: 0 }, gateways),
    sandboxes: none,
    templates: [base],
    copies: [],
    names: [],
  };
  member.takeState(state);
  return member;
}
