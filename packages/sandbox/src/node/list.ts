// The listing: which sandboxes match, in a stable order, page by page.
import { comparePositions, type Position, parsePositionToken, positionToken } from "@svc/contract/list-position.ts";
import type { ListedSandbox, SandboxDetail } from "@svc/contract/sandbox.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import { type Clock, openWallTimes } from "../records/clock.ts";
import { isOwned, type OwnedRecord, type Registry, shownState } from "../records/registry.ts";
import type { Idle } from "./idle.ts";
import type { ProxyLink } from "./proxy-link.ts";

export type ListQuery = {
  readonly metadata?: string | undefined;
  readonly state?: string | undefined;
  readonly startedAfter?: string | undefined;
  readonly template?: string | undefined;
  readonly order: "asc" | "desc";
  readonly limit: number;
  readonly nextToken?: string | undefined;
};

type Filter = Pick<ListQuery, "metadata" | "state" | "startedAfter" | "template">;

export type ListingParts = {
  readonly registry: Pick<Registry, "all">;
  readonly clock: Clock;
  readonly seed: string;
  readonly proxy: Pick<ProxyLink, "domain">;
  readonly idle: Pick<Idle, "secondsOf">;
};

type WallTimes = ReturnType<typeof openWallTimes>;
export type ShownRecord = Pick<OwnedRecord, "sandboxID" | "templateID" | "limits" | "envdVersion" | "status">;

export interface Listing {
  /** One page, and the token of the next one where more follow. */
  page(query: ListQuery): { items: ListedSandbox[]; next: string | undefined };
  all(filter: Filter): ListedSandbox[];
  detail(record: ShownRecord): SandboxDetail;
}

export function openListing(parts: ListingParts): Listing {
  const { registry } = parts;
  const wallTimes = openWallTimes(parts.clock);
  return {
    page: (query) => page(registry, wallTimes, query),
    all: (filter) => matches(registry, filter).map((record) => listed(wallTimes, record)),
    detail: (record) => detail(parts, wallTimes, record),
  };
}

export function listed(wallTimes: WallTimes, record: ShownRecord): ListedSandbox {
  const { claim } = record.status;
  const state = shownState(record);
  return {
    sandboxID: record.sandboxID,
    templateID: record.templateID,
    clientID: "svc",
    ...(claim.alias === undefined ? {} : { alias: claim.alias }),
    startedAt: new Date(claim.startedAtWallMs).toISOString(),
    endAt: new Date(endWallMs(wallTimes, record)).toISOString(),
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

/** When it ends or pauses; of a paused one, when it was paused. Right also after the wall clock was set. */
function endWallMs(wallTimes: WallTimes, { status }: ShownRecord): number {
  if (status.state === "paused" || status.state === "resuming") return status.pausedAtWallMs;
  return wallTimes(status.claim.deadlineMs);
}

function detail({ seed, proxy, idle }: ListingParts, wallTimes: WallTimes, record: ShownRecord): SandboxDetail {
  const { claim } = record.status;
  const idlePauseSeconds = idle.secondsOf(claim);
  return {
    ...listed(wallTimes, record),
    ...(claim.secure ? { envdAccessToken: deriveToken(seed, "envd", record.sandboxID) } : {}),
    ...(claim.trafficPrivate ? { trafficAccessToken: deriveToken(seed, "traffic", record.sandboxID) } : {}),
    allowInternetAccess: claim.egress.allowInternet,
    domain: proxy.domain,
    network: {
      allowPublicTraffic: !claim.trafficPrivate,
      ...(claim.maskRequestHost === undefined ? {} : { maskRequestHost: claim.maskRequestHost }),
      ...(claim.egress.allowOut.length === 0 ? {} : { allowOut: [...claim.egress.allowOut] }),
      ...(claim.egress.denyOut.length === 0 ? {} : { denyOut: [...claim.egress.denyOut] }),
    },
    ...("kept" in record.status ? { pauseMode: record.status.kept.kind === "memory" ? ("full" as const) : ("filesystem" as const) } : {}),
    ...(idlePauseSeconds > 0 || claim.idlePauseSeconds !== undefined ? { idlePauseSeconds } : {}),
    lifecycle: { autoResume: claim.autoResume, onTimeout: claim.onTimeout },
  };
}

function page(registry: ListingParts["registry"], wallTimes: WallTimes, query: ListQuery): { items: ListedSandbox[]; next: string | undefined } {
  const direction = query.order === "asc" ? 1 : -1;
  const cursor = query.nextToken === undefined ? undefined : parsePositionToken(query.nextToken);
  const matching = matches(registry, query)
    .sort((a, b) => direction * comparePositions(positionOf(a), positionOf(b)))
    .filter((record) => cursor === undefined || direction * comparePositions(positionOf(record), cursor) > 0);
  const items = matching.slice(0, query.limit);
  const last = items.at(-1);
  const next = matching.length > items.length && last !== undefined ? positionToken(positionOf(last)) : undefined;
  return { items: items.map((record) => listed(wallTimes, record)), next };
}

function matches(registry: ListingParts["registry"], query: Filter): OwnedRecord[] {
  const states = query.state?.split(",");
  const pairs = query.metadata === undefined ? [] : metadataPairs(query.metadata);
  const after = query.startedAfter === undefined ? undefined : Date.parse(query.startedAfter);
  const found: OwnedRecord[] = [];
  for (const record of registry.all()) {
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

function positionOf(record: OwnedRecord): Position {
  return [record.status.claim.startedAtWallMs, record.sandboxID];
}
