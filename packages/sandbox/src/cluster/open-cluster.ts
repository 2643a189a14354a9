// What a node shows to gateways: its state as a stream, and answers to what they cannot know; nothing of it runs before one comes.
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
    /** Where it is part of a deployment that etcd keeps. */
    readonly membership: Pick<Membership, "generation" | "clock"> | undefined;
    /** Names the program that memory is checkpointed with; "" where none is needed. */
    readonly program: () => string;
    readonly registry: Registry;
    readonly records: Pick<Records, "ended" | "keys" | "snapshots">;
    readonly quarantine: Pick<Quarantine, "find">;
    readonly observe: Pick<Observe, "events" | "usage">;
    readonly templates: Pick<Templates, "index" | "builder">;
    /** Which builds of a template of its are in object storage; whether there is none, and it fetches from other nodes. */
    readonly transfer: { readonly templates: { shared(templateID: string): readonly string[] }; readonly isFedByNodes: boolean };
    readonly directory: SandboxDirectory;
    /** Sandboxes on their way to other nodes. */
    readonly claims: StreamParts["claims"];
    /** Names no domain of its own: then the gateway's is shown to clients. */
    readonly proxy: { domain: string } | undefined;
  };

export interface Cluster {
  /** For serve's `raw`. */
  routes(scope: RawScope, self: { readonly apiKey: string; readonly version: string }): void;
  /** Ends the streams; gateways take the node out of placement. */
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
    return templates.index.bears(name) || templates.builder.builds.template(name) !== undefined || isOwn(records.snapshots.find(asked));
  };
  /** What the name of a template that was built here, or of a snapshot that was taken here, means now. */
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
      findRoutes({ directory, knowsSandbox, knowsTemplate, buildOf, knowsKey: (key) => records.keys.created(key) !== undefined })(scope);
    },
    end: () => end(),
  };
}

/** As other nodes and gateways know them. */
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
  // What stands on files of this host's own stays here, and set-up makes its templates on each node.
  const isBuiltForTransfer = (templateID: string) =>
    builds.of(templateID).some(({ result }) => result !== undefined && (result.chain.base?.binds ?? []).length === 0);
  const held = templates.index.listed().map(({ templateID, names, aliases, buildStatus, memoryMB }): HeldTemplate => {
    const shared = [...transfer.templates.shared(templateID)];
    const isReady = buildStatus === "ready";
    return {
      templateID,
      names: [...new Set([...names, ...aliases])],
      kind: "template",
      isReady,
      memoryMB,
      builds: shared,
      isOffered: isReady && isBuiltForTransfer(templateID),
      createdAtMs: 0,
    };
  });
  const kept = records.snapshots.list({}).map(({ snapshotID, names, limits, image, createdAtWallMs, originNodeID }): HeldTemplate => {
    const common = { templateID: snapshotID, names: [...names], kind: "snapshot" as const, isReady: true, memoryMB: limits.memoryMB, builds: [] };
    const origin = originNodeID === undefined ? {} : { originNodeID };
    return { ...common, isOffered: image.binds.length === 0, createdAtMs: createdAtWallMs, ...origin };
  });
  return [...held, ...kept];
}

function copiedTemplates({ builder }: Pick<ClusterParts["templates"], "builder">): CopiedTemplate[] {
  const copied = new Map<string, CopiedTemplate>();
  for (const { templateID, name, buildID, result } of builder.copies.all()) {
    const builds = [...(copied.get(templateID)?.builds ?? []), buildID];
    copied.set(templateID, { templateID, name, memoryMB: result.memoryMB, builds });
  }
  return [...copied.values()];
}
