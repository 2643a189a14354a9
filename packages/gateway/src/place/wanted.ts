// Decides how many nodes a deployment needs, and why: the load of all nodes, spread over nodes that are filled to a target.

export const wantedReasons = ["sandboxes", "promised_memory", "used_memory", "waiting_creates"] as const;
export type WantedReason = (typeof wantedReasons)[number];

/** A node as the estimate sees it. Sandboxes on nodes that do not answer do not count: their clients create them again. */
export type NodeUse = {
  readonly nodeID: string;
  readonly isDraining: boolean;
  /** Sandboxes that run or start. */
  readonly sandboxes: number;
  readonly maxSandboxes: number;
  readonly memory: { readonly totalBytes: number; readonly availableBytes: number; readonly reservedBytes: number };
};

export type WantedRules = {
  /** How much of a node its sandboxes may fill, from 0 to 1, so that a burst or the loss of another node finds room. */
  readonly target: number;
  readonly minNodes: number;
  readonly memoryOvercommit: number;
  readonly memoryShare: number;
};

export type Wanted = { readonly nodes: number; readonly reason: WantedReason; readonly by: Readonly<Record<WantedReason, number>> };

/** `waiting`: creates in the admission queues of all gateways. A draining node is not counted as capacity, but its sandboxes need room elsewhere. */
export function nodesWanted(nodes: readonly NodeUse[], waiting: number, { target, minNodes, memoryOvercommit, memoryShare }: WantedRules): Wanted {
  const serving = nodes.filter(({ isDraining }) => !isDraining);
  const typical = (of: (node: NodeUse) => number) => median((serving.length > 0 ? serving : nodes).map(of));
  const total = (of: (node: NodeUse) => number) => nodes.reduce((sum, node) => sum + of(node), 0);
  const sandboxes = total((node) => node.sandboxes);
  const promised = total(({ memory }) => memory.reservedBytes);
  // A waiting create will need what a sandbox of this deployment needs on average.
  const growth = sandboxes === 0 ? 1 : (sandboxes + waiting) / sandboxes;
  const needs = (load: number, capacity: number) => (capacity > 0 ? Math.ceil((load * growth) / (capacity * target)) : 0);
  const by = {
    sandboxes: needs(
      sandboxes,
      typical((node) => node.maxSandboxes),
    ),
    promised_memory: needs(promised, typical(({ memory }) => memory.totalBytes) * memoryOvercommit),
    used_memory: needs(
      total(({ memory }) => memory.totalBytes - memory.availableBytes),
      typical(({ memory }) => memory.totalBytes) * memoryShare,
    ),
    // Creates wait only while no node takes them, whatever the other numbers say.
    waiting_creates: waiting > 0 ? serving.length + 1 : 0,
  };
  const reason = wantedReasons.reduce((best, each) => (by[each] > by[best] ? each : best));
  return { nodes: Math.max(minNodes, by[reason]), reason, by };
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

/** Returns the nodes that a scale-in drains: those with the fewest sandboxes, which lose least by it. */
export function nodesToDrain(nodes: readonly NodeUse[], wanted: number): string[] {
  const serving = nodes.filter(({ isDraining }) => !isDraining);
  const fewestFirst = serving.toSorted((a, b) => a.sandboxes - b.sandboxes || (a.nodeID < b.nodeID ? -1 : 1));
  return fewestFirst.slice(0, Math.max(0, serving.length - wanted)).map(({ nodeID }) => nodeID);
}

const BUCKETS = 20;

/** Follows the estimate up at once, and down only after it was lower for a time, so that the fleet does not follow every lull. */
export class SteadyWanted {
  readonly #bucketMs: number;
  readonly #nowMs: () => number;
  /** The largest estimate of each part of the time, newest last. */
  #buckets: { readonly atMs: number; readonly wanted: Wanted }[] = [];

  constructor(scaleInMs: number, nowMs: () => number) {
    this.#bucketMs = scaleInMs / BUCKETS;
    this.#nowMs = nowMs;
  }

  add(wanted: Wanted): void {
    const now = this.#nowMs();
    const last = this.#buckets.at(-1);
    if (last === undefined || now - last.atMs >= this.#bucketMs) this.#buckets.push({ atMs: now, wanted });
    else if (wanted.nodes >= last.wanted.nodes) this.#buckets[this.#buckets.length - 1] = { atMs: last.atMs, wanted };
    this.#buckets = this.#buckets.filter(({ atMs }) => now - atMs < this.#bucketMs * (BUCKETS + 1));
  }

  /** The largest estimate within the time; undefined before the first. */
  get current(): Wanted | undefined {
    return this.#buckets.reduce<Wanted | undefined>((best, { wanted }) => (best === undefined || wanted.nodes >= best.nodes ? wanted : best), undefined);
  }
}
