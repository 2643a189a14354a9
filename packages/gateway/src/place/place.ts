// Which nodes may take a new sandbox, in which order: a filter and a score, without effects and without a clock of its own.

/** "spread" takes the node with most left, "pack" fills one before the next. */
export const strategies = ["spread", "pack"] as const;
export type Strategy = (typeof strategies)[number];

/** A node as placement sees it; a simulation makes these itself. */
export type Candidate = {
  readonly nodeID: string;
  /** It says something, and its secrets are the deployment's. */
  readonly isUp: boolean;
  readonly isDraining: boolean;
  readonly cpuClass: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly maxSandboxes: number;
  /** Sandboxes that run. */
  readonly running: number;
  /** Starts under way, those included that its last word cannot count yet. */
  readonly starting: number;
  /**
   * For the spread: what this gateway has sent there, times the gateways, whose shares are about the same; or the node's last word, where
   * that is more. By the words alone, which are of different ages, the node that is too busy to speak would look empty during a burst.
   */
  readonly underWay: number;
  /** Said "full" to a create, and nothing that makes room has happened since. */
  readonly isFull: boolean;
  readonly memory: { readonly totalBytes: number; readonly availableBytes: number; readonly reservedBytes: number };
  /** What it would start from; undefined where it does not hold the template. */
  template(asked: string): { readonly memoryBytes: number; readonly ready: number } | undefined;
};

export type Request = {
  readonly templateID: string;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  /** Of a checkpoint: the class it was taken on. */
  readonly cpuClass?: string | undefined;
  readonly idempotencyKey?: string | undefined;
};

export type Rules = {
  readonly strategy: Strategy;
  readonly memoryOvercommit: number;
  readonly memoryShare: number;
};

export type Refusal = "unknown template" | "down" | "draining" | "labels" | "CPU class" | "full" | "memory";

export type Placed = {
  /** Best first. */
  readonly candidates: readonly Candidate[];
  /** Why each of the others may not. */
  readonly refused: ReadonlyMap<string, Refusal>;
};

/** A sandbox that just started uses this share of its limit, until a node's own figures say more. */
const FRESH_USE = 0.25;
/** A node without a warm sandbox of the template counts as if it held this many more: a start costs its cores. */
const COLD_PENALTY = 3;

export function place(nodes: readonly Candidate[], request: Request, rules: Rules): Placed {
  const refused = new Map<string, Refusal>();
  const fit: { readonly node: Candidate; readonly cost: number }[] = [];
  for (const node of nodes) {
    const why = refusalOf(node, request, rules);
    if (why === undefined) fit.push({ node, cost: costOf(node, request, rules) });
    else refused.set(node.nodeID, why);
  }
  const { idempotencyKey: key } = request;
  const direction = rules.strategy === "spread" ? 1 : -1;
  if (key !== undefined) fit.sort((a, b) => weightOf(key, b.node.nodeID) - weightOf(key, a.node.nodeID));
  else fit.sort((a, b) => direction * (a.cost - b.cost) || (a.node.nodeID < b.node.nodeID ? -1 : 1));
  return { candidates: fit.map(({ node }) => node), refused };
}

function refusalOf(node: Candidate, request: Request, rules: Rules): Refusal | undefined {
  const template = node.template(request.templateID);
  if (template === undefined) return "unknown template";
  if (!node.isUp) return "down";
  if (node.isDraining) return "draining";
  if (!hasLabels(node, request)) return "labels";
  if (request.cpuClass !== undefined && !isWideEnough(node.cpuClass, request.cpuClass)) return "CPU class";
  if (node.isFull || node.running + node.starting >= node.maxSandboxes) return "full";
  return hasMemory(node, template.memoryBytes, rules) ? undefined : "memory";
}

export function hasLabels(node: Pick<Candidate, "labels">, { labels = {} }: Request): boolean {
  return Object.entries(labels).every(([name, value]) => node.labels[name] === value);
}

/** By what is promised, and by what is left of what is there: pages that copies share are in the latter once. */
function hasMemory({ memory, starting }: Candidate, memoryBytes: number, { memoryOvercommit, memoryShare }: Rules): boolean {
  const { totalBytes, availableBytes, reservedBytes } = memory;
  const coming = starting + 1;
  const promised = reservedBytes + coming * memoryBytes;
  const left = availableBytes - coming * memoryBytes * FRESH_USE;
  return promised <= totalBytes * memoryOvercommit && left >= totalBytes * (1 - memoryShare);
}

/** 0 for an empty node, 1 for a full one: by whichever of places and memory is scarcer. */
function costOf(node: Candidate, request: Request, { memoryOvercommit }: Rules): number {
  const template = node.template(request.templateID);
  const held = node.running + node.underWay;
  const cold = (template?.ready ?? 0) > node.starting ? 0 : COLD_PENALTY;
  const { totalBytes, reservedBytes } = node.memory;
  const promised = reservedBytes + node.underWay * (template?.memoryBytes ?? 0);
  return Math.max((held + cold) / Math.max(1, node.maxSandboxes), promised / Math.max(1, totalBytes * memoryOvercommit));
}

/** Levels of x86-64 hold those below them; any other class holds itself. */
export function isWideEnough(has: string, needs: string): boolean {
  const levelOf = (cpuClass: string) => (cpuClass === "x86-64" ? 1 : Number(/^x86-64-v(\d)$/.exec(cpuClass)?.[1] ?? 0));
  return has === needs || (levelOf(needs) > 0 && levelOf(has) >= levelOf(needs));
}

/** The same everywhere for a key and a node (FNV-1a, then a mix): which node a repeated create goes to first. */
export function weightOf(key: string, nodeID: string): number {
  let hash = 0x811c9dc5;
  for (const text of [key, "\0", nodeID]) for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}
