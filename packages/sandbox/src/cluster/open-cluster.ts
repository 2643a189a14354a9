// A node's side towards gateways: its state as a stream, and answers to lookups; no part of it runs before a gateway connects.
import type { CopiedTemplate, HeldTemplate, NameRecord } from "@svc/contract/cluster.ts";
import { fingerprintOf } from "@svc/kit/secret.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Observe } from "../observe/open-observe.ts";
import { systemClock } from "../records/clock.ts";
import type { SandboxDirectory } from "../records/directory.ts";
import type { Quarantine } from "../records/quarantine.ts";
import { ENDED_KEPT_MS, type Records } from "../records/records.ts";
import { isOwned, type Registry } from "../records/registry.ts";
import type { NamedSnapshot } from "../records/snapshots.ts";
import type { Templates } from "../template/open-templates.ts";
import { findRoutes } from "./find.ts";
import { type IdentityParts, readIdentity } from "./identity.ts";
import type { Membership } from "./join.ts";
import { type LoadParts, openLoad } from "./load.ts";
import { nodeIDOf } from "./node-id.ts";
import { openClusterStreams, type StreamParts } from "./stream.ts";

export type ClusterParts = Pick<IdentityParts, "home" | "labels" | "runtime"> &
  Pick<LoadParts, "admission" | "pool"> & {
    readonly capacity: LoadParts["capacity"] & { readonly max: number; readonly isStopping: boolean; readonly isDraining: boolean };
    readonly seed: string;
    /** Given if the node is part of a deployment in etcd. */
    readonly membership: Pick<Membership, "generation" | "clock"> | undefined;
    /** Returns the name of the program that checkpoints memory; "" if none is needed. */
    readonly program: () => string;
    readonly registry: Registry;
    readonly records: Pick<Records, "ended" | "keys" | "snapshots">;
    readonly quarantine: Pick<Quarantine, "find">;
    readonly observe: Pick<Observe, "events" | "usage">;
    readonly templates: Pick<Templates, "index" | "builder">;
    /**
     * `shared` returns the builds of a template that are in object storage; `isFedByNodes` is true if there is none, so that nodes fetch from nodes.
     */
    readonly transfer: { readonly templates: { shared(templateID: string): readonly string[] }; readonly isFedByNodes: boolean };
    readonly previews: LoadParts["previews"];
    readonly volumes: { has(asked: string): Promise<boolean> };
    readonly directory: SandboxDirectory;
    /** Sandboxes that are moving to other nodes. */
    readonly claims: StreamParts["claims"];
    /** Given if the proxy has no domain of its own; it then shows clients the gateway's domain. */
    readonly proxy: { domain: string } | undefined;
  };

export interface Cluster {
  /** Adds the routes to the `raw` scope of serve(). */
  routes(scope: RawScope, self: { readonly apiKey: string; readonly version: string }): void;
  /** Ends the streams, so that gateways take the node out of placement. */
  end(): void;
}

export function openCluster(parts: ClusterParts): Cluster {
  const { home, labels, runtime, seed, capacity, registry, records, quarantine, observe, templates, directory, claims, proxy } = parts;
  const generation = parts.membership?.generation ?? Date.now();
  const seedFingerprint = fingerprintOf(seed, "seed");
  let end = (): void => {};

  function knowsSandbox(sandboxID: string): boolean {
    if (isOwned(registry.get(sandboxID)) || quarantine.find("sandbox", sandboxID) !== undefined) return true;
    const ended = records.ended(sandboxID);
    return ended !== undefined && (parts.membership?.clock ?? systemClock).wallMs() - ended.endedAtWallMs < ENDED_KEPT_MS;
  }
  const knowsTemplate = (asked: string) => {
    const [name = ""] = asked.split(":");
    return (
      templates.index.bears(name) ||
      templates.builder.builds.template(name) !== undefined ||
      templates.builder.builds.resolve(asked) !== undefined ||
      isOwn(records.snapshots.find(asked))
    );
  };
  /** Returns the current build of a template built here, or the id of a snapshot taken here, for a name. */
  const buildOf = (asked: string) => {
    const snapshot = records.snapshots.find(asked);
    return templates.builder.builds.resolve(asked)?.build.buildID ?? (isOwn(snapshot) && !templates.index.bears(asked) ? snapshot?.snapshotID : undefined);
  };

  return {
    routes(scope, { apiKey, version }) {
      const streams = openClusterStreams({
        apiKey,
        registry,
        claims,
        events: observe.events,
        identity: () =>
          readIdentity({
            home,
            version,
            apiKey,
            seedFingerprint,
            labels,
            maxSandboxes: capacity.max,
            runtime,
            generation,
            fetchesFromNodes: parts.transfer.isFedByNodes,
            runsc: parts.program(),
          }),
        load: openLoad({
          ...parts,
          usage: observe.usage,
          clockSkewMs: () => parts.membership?.clock.skewMs,
          isDraining: () => capacity.isStopping || capacity.isDraining,
        }),
        templates: () => heldTemplates(parts),
        copies: () => copiedTemplates(templates),
        names: namesOf(records, () => nodeIDOf(home)),
        onDomain(domain) {
          if (proxy !== undefined) proxy.domain = domain;
        },
      });
      end = streams.end;
      streams.routes(scope);
      const knowsKey = (key: string) => records.keys.created(key) !== undefined;
      findRoutes({ directory, knowsSandbox, knowsTemplate, buildOf, knowsVolume: parts.volumes.has, knowsKey })(scope);
    },
    end: () => end(),
  };
}

/** Replaces the empty node id of this node's own records by its name, as other nodes and gateways expect. */
function namesOf({ snapshots: { names } }: Pick<ClusterParts["records"], "snapshots">, nodeID: () => string): StreamParts["names"] {
  const shown = (records: Iterable<NameRecord>) => {
    const self = nodeID();
    return [...records].map((each) => (each.nodeID === "" ? { ...each, nodeID: self } : each));
  };
  return { all: () => shown(names.all()), watch: (onChange) => names.watch((records) => onChange(shown(records))) };
}

const isOwn = (snapshot: NamedSnapshot | undefined) => snapshot !== undefined && snapshot.originNodeID === undefined;

function heldTemplates({ templates, records, transfer }: Pick<ClusterParts, "templates" | "records" | "transfer">): HeldTemplate[] {
  const { builds } = templates.builder;
  // A template that needs bind mounts of this host's files cannot be transferred, and set-up makes its own templates on each node.
  const isBuiltForTransfer = (templateID: string) =>
    builds.of(templateID).some(({ result }) => result !== undefined && (result.chain.base?.binds ?? []).length === 0);
  const built = templates.index.listed().map(({ templateID, names, aliases, buildStatus, memoryMB, cpuCount, diskSizeMB }): HeldTemplate => {
    const shared = [...transfer.templates.shared(templateID)];
    const isReady = buildStatus === "ready";
    return {
      templateID,
      names: [...new Set([...names, ...aliases])],
      kind: "template",
      isReady,
      memoryMB,
      cpuCount,
      diskSizeMB,
      builds: shared,
      isOffered: isReady && isBuiltForTransfer(templateID),
      createdAtMs: 0,
    };
  });
  const kept = records.snapshots.list({}).map(({ snapshotID, names, limits, image, createdAtWallMs, originNodeID, tenant }): HeldTemplate => {
    const common = {
      templateID: snapshotID,
      names: [...names],
      kind: "snapshot" as const,
      ...(tenant === undefined ? {} : { tenant }),
      isReady: true,
      memoryMB: limits.memoryMB,
      cpuCount: limits.cpuCount,
      diskSizeMB: limits.diskSizeMB,
      builds: [],
    };
    const origin = originNodeID === undefined ? {} : { originNodeID };
    return { ...common, isOffered: image.binds.length === 0, createdAtMs: createdAtWallMs, ...origin };
  });
  return [...built, ...kept];
}

function copiedTemplates({ builder }: Pick<ClusterParts["templates"], "builder">): CopiedTemplate[] {
  const copied = new Map<string, CopiedTemplate>();
  for (const { templateID, name, buildID, result } of builder.copies.all()) {
    const builds = [...(copied.get(templateID)?.builds ?? []), buildID];
    copied.set(templateID, { templateID, name, memoryMB: result.memoryMB, builds });
  }
  return [...copied.values()];
}
