// The listing: which sandboxes match, in a stable order, page by page.
import { fail } from "@svc/contract/failures.ts";
import type { ListedSandbox, SandboxDetail } from "@svc/contract/sandbox.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import type { Node } from "./node.ts";
import { isOwned, type OwnedRecord } from "./registry.ts";

export type ListQuery = {
  readonly metadata?: string | undefined;
  readonly state?: string | undefined;
  readonly startedAfter?: string | undefined;
  readonly template?: string | undefined;
  readonly order: "asc" | "desc";
  readonly limit: number;
  readonly nextToken?: string | undefined;
};

export function listed(node: Node, record: OwnedRecord): ListedSandbox {
  const { claim } = record.status;
  const state = shownState(record);
  return {
    sandboxID: record.sandboxID,
    templateID: record.templateID,
    clientID: "svc",
    ...(claim.alias === undefined ? {} : { alias: claim.alias }),
    startedAt: new Date(claim.startedAtWallMs).toISOString(),
    endAt: new Date(endWallMs(node, record)).toISOString(),
    cpuCount: record.limits.cpuCount,
    memoryMB: record.limits.memoryMB,
    diskSizeMB: record.limits.diskSizeMB,
    state,
    envdVersion: record.envdVersion,
    metadata: { ...claim.metadata },
    ...(claim.parentSandboxID === undefined ? {} : { parentSandboxID: claim.parentSandboxID }),
    forkDepth: claim.forkDepth,
  };
}

/** Clients know two states: one on its way to a pause still runs until its capture is whole, one on its way back is still paused. */
function shownState({ status }: OwnedRecord): "running" | "paused" {
  return status.state === "running" || status.state === "pausing" ? "running" : "paused";
}

/** When it ends or pauses; of a paused one, when it was paused. Reckoned anew at every reading: right also after the wall clock was set. */
function endWallMs(node: Node, { status }: OwnedRecord): number {
  if (status.state === "paused" || status.state === "resuming") return status.pausedAtWallMs;
  return node.clock.wallMs() + status.claim.deadlineMs - node.clock.monotonicMs();
}

export function detail(node: Node, record: OwnedRecord): SandboxDetail {
  const { claim } = record.status;
  return {
    ...listed(node, record),
    ...(claim.secure ? { envdAccessToken: deriveToken(node.seed, "envd", record.sandboxID) } : {}),
    ...(claim.trafficPrivate ? { trafficAccessToken: deriveToken(node.seed, "traffic", record.sandboxID) } : {}),
    allowInternetAccess: claim.egress.allowInternet,
    domain: node.domain,
    network: {
      allowPublicTraffic: !claim.trafficPrivate,
      ...(claim.maskRequestHost === undefined ? {} : { maskRequestHost: claim.maskRequestHost }),
      ...(claim.egress.allowOut.length === 0 ? {} : { allowOut: [...claim.egress.allowOut] }),
      ...(claim.egress.denyOut.length === 0 ? {} : { denyOut: [...claim.egress.denyOut] }),
    },
    ...("kept" in record.status ? { pauseMode: record.status.kept.kind === "memory" ? ("full" as const) : ("filesystem" as const) } : {}),
    lifecycle: { autoResume: claim.autoResume, onTimeout: claim.onTimeout },
  };
}

/** One page, and the token of the next one where more follow. */
export function page(node: Node, query: ListQuery): { items: ListedSandbox[]; next: string | undefined } {
  const direction = query.order === "asc" ? 1 : -1;
  const cursor = query.nextToken === undefined ? undefined : parseToken(query.nextToken);
  const matching = matches(node, query)
    .sort((a, b) => direction * compare(positionOf(a), positionOf(b)))
    .filter((record) => cursor === undefined || direction * compare(positionOf(record), cursor) > 0);
  const items = matching.slice(0, query.limit);
  const last = items.at(-1);
  const next = matching.length > items.length && last !== undefined ? Buffer.from(JSON.stringify(positionOf(last))).toString("base64url") : undefined;
  return { items: items.map((record) => listed(node, record)), next };
}

export function matches(node: Node, query: Pick<ListQuery, "metadata" | "state" | "startedAfter" | "template">): OwnedRecord[] {
  const states = query.state?.split(",");
  const pairs = query.metadata === undefined ? [] : metadataPairs(query.metadata);
  const after = query.startedAfter === undefined ? undefined : Date.parse(query.startedAfter);
  const found: OwnedRecord[] = [];
  for (const record of node.registry.all()) {
    if (!isOwned(record)) continue;
    const { claim } = record.status;
    if (states !== undefined && !states.includes(shownState(record))) continue;
    if (!pairs.every((spellings) => spellings.some(([key, value]) => Object.hasOwn(claim.metadata, key) && claim.metadata[key] === value))) continue;
    if (after !== undefined && claim.startedAtWallMs < after) continue;
    if (query.template !== undefined && query.template !== record.templateID && query.template !== claim.alias) continue;
    found.push(record);
  }
  return found;
}

/** Each pair of the filter in both spellings that clients use: encoded once as a query string, or each part once before that. */
function metadataPairs(filter: string): [key: string, value: string][][] {
  return [...new URLSearchParams(filter)].map((pair) => {
    const [key, value] = pair.map(decoded);
    return key === undefined || value === undefined ? [pair] : [pair, [key, value]];
  });
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

type Position = readonly [startedAtWallMs: number, sandboxID: string];

function positionOf(record: OwnedRecord): Position {
  return [record.status.claim.startedAtWallMs, record.sandboxID];
}

function compare(a: Position, b: Position): number {
  return a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0);
}

function parseToken(token: string): Position {
  try {
    const value: unknown = JSON.parse(Buffer.from(token, "base64url").toString("utf8"));
    if (Array.isArray(value) && typeof value[0] === "number" && typeof value[1] === "string") return [value[0], value[1]];
  } catch {
    // said below
  }
  return fail("INVALID_REQUEST", "nextToken: is not one that this server gave; take it from the header x-next-token of the page before");
}
