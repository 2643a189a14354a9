// The listing: sandboxes that match a filter, in a stable order, page by page.
import { CLIENT_ID } from "@svc/contract/fields.ts";
import { type SandboxFilter, sandboxMatcher } from "@svc/contract/list-filter.ts";
import { comparePositions, type Position, parsePositionToken, positionToken } from "@svc/contract/list-position.ts";
import type { HostRuleInput } from "@svc/contract/network.ts";
import type { ListedSandbox, SandboxDetail } from "@svc/contract/sandbox.ts";
import { deriveToken } from "@svc/kit/secret.ts";
import type { HostRules } from "../../egress/host-rules.ts";
import { shownProxy } from "../../egress/proxy.ts";
import { type Clock, openWallTimes } from "../../records/clock.ts";
import { isOwned, type OwnedRecord, type Registry, shownState } from "../../records/registry.ts";
import type { ProxyLink } from "../supply/proxy-link.ts";
import type { Idle } from "../watch/idle.ts";

/** With `tenant`, only that tenant's sandboxes match. */
type TenantFilter = { readonly tenant?: string | undefined };
export type ListQuery = SandboxFilter &
  TenantFilter & {
    readonly order: "asc" | "desc";
    readonly limit: number;
    readonly nextToken?: string | undefined;
  };

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
  /** Returns one page, and the token of the next page if more sandboxes follow. */
  page(query: ListQuery): { items: ListedSandbox[]; next: string | undefined };
  all(filter: SandboxFilter & TenantFilter): ListedSandbox[];
  detail(record: ShownRecord): SandboxDetail;
  one(record: ShownRecord): ListedSandbox;
}

export function openListing(parts: ListingParts): Listing {
  const { registry } = parts;
  const wallTimes = openWallTimes(parts.clock);
  return {
    page: (query) => page(registry, wallTimes, query),
    all: (filter) => matches(registry, filter).map((record) => listed(wallTimes, record)),
    detail: (record) => detail(parts, wallTimes, record),
    one: (record) => listed(wallTimes, record),
  };
}

export function listed(wallTimes: WallTimes, record: ShownRecord): ListedSandbox {
  const { claim } = record.status;
  const state = shownState(record);
  return {
    sandboxID: record.sandboxID,
    templateID: record.templateID,
    clientID: CLIENT_ID,
    ...(claim.alias === undefined ? {} : { alias: claim.alias }),
    startedAt: new Date(claim.startedAtWallMs).toISOString(),
    endAt: new Date(endWallMs(wallTimes, record)).toISOString(),
    cpuCount: record.limits.cpuCount,
    memoryMB: record.limits.memoryMB,
    diskSizeMB: record.limits.diskSizeMB,
    state,
    envdVersion: record.envdVersion,
    metadata: { ...claim.metadata },
    ...(claim.volumes === undefined || claim.volumes.length === 0 ? {} : { volumeMounts: claim.volumes.map(({ name, path }) => ({ name, path })) }),
    ...(claim.parentSandboxID === undefined ? {} : { parentSandboxID: claim.parentSandboxID }),
    forkDepth: claim.forkDepth,
    ...(claim.tenant === undefined ? {} : { tenant: claim.tenant }),
  };
}

/** Returns when the sandbox ends or pauses; for a paused one, when it was paused. Steps of the wall clock do not affect it. */
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
      ...(claim.httpsPorts === undefined ? {} : { httpsPorts: [...claim.httpsPorts] }),
      ...(claim.egress.allowOut.length === 0 ? {} : { allowOut: [...claim.egress.allowOut] }),
      ...(claim.egress.denyOut.length === 0 ? {} : { denyOut: [...claim.egress.denyOut] }),
      ...(claim.egress.dnsServers === undefined ? {} : { dnsServers: [...claim.egress.dnsServers] }),
      ...(claim.egress.rules === undefined ? {} : { rules: shownRules(claim.egress.rules) }),
      ...(claim.egress.proxy === undefined ? {} : { egressProxy: shownProxy(claim.egress.proxy) }),
    },
    ...("kept" in record.status ? { pauseMode: record.status.kept.kind === "memory" ? ("full" as const) : ("filesystem" as const) } : {}),
    ...(idlePauseSeconds > 0 || claim.idlePauseSeconds !== undefined ? { idlePauseSeconds } : {}),
    lifecycle: { autoResume: claim.autoResume, onTimeout: claim.onTimeout },
  };
}

function shownRules(rules: HostRules): Record<string, HostRuleInput[]> {
  return Object.fromEntries(Object.entries(rules).map(([host, list]) => [host, list.map((rule) => structuredClone(rule) as HostRuleInput)]));
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

function matches(registry: ListingParts["registry"], query: SandboxFilter & TenantFilter): OwnedRecord[] {
  const isMeant = sandboxMatcher(query);
  return [...registry.all()].filter(isOwned).filter((record) => {
    const { claim } = record.status;
    if (query.tenant !== undefined && claim.tenant !== query.tenant) return false;
    const { metadata, alias, startedAtWallMs: startedAtMs } = claim;
    return isMeant({ state: shownState(record), metadata, startedAtMs, templateID: record.templateID, alias });
  });
}

function positionOf(record: OwnedRecord): Position {
  return [record.status.claim.startedAtWallMs, record.sandboxID];
}
