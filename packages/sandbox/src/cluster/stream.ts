// GET /cluster/stream: the node's state for a gateway, complete first, then each change, with a beat so that silence shows a failure.
import type { ServerResponse } from "node:http";
import {
  BEAT_MS,
  CLUSTER_VERSION,
  type ClusterFrame,
  type CopiedTemplate,
  type HeldTemplate,
  type NameRecord,
  type NodeIdentity,
  type NodeLoad,
  type SandboxIDs,
  STREAM_PATH,
  streamQuery,
} from "@svc/contract/cluster.ts";
import { Failure, fail } from "@svc/contract/failures.ts";
import { fingerprintOf, sameSecret } from "@svc/kit/secret.ts";
import type { RawScope } from "@svc/kit/serve.ts";
import type { Events } from "../observe/events.ts";
import { isOwned, type Registry, shownState } from "../records/registry.ts";
import { ownedSandboxOf } from "../records/tenant-usage.ts";

export type StreamParts = {
  readonly apiKey: string;
  readonly registry: Pick<Registry, "all" | "get" | "watch">;
  readonly claims: {
    readonly leaving: Pick<ReadonlyMap<string, unknown>, "has" | "keys">;
    watch(onChange: (sandboxID: string, isLeaving: boolean) => void): () => void;
  };
  readonly events: Pick<Events, "newest" | "read" | "watch">;
  readonly identity: () => NodeIdentity;
  readonly load: () => Omit<NodeLoad, "gateways">;
  readonly templates: () => readonly HeldTemplate[];
  readonly copies: () => readonly CopiedTemplate[];
  /** The records of snapshot names that this node knows. */
  readonly names: { all(): readonly NameRecord[]; watch(onChange: (records: readonly NameRecord[]) => void): () => void };
  /** Receives the domain at which clients of the gateway reach sandboxes. */
  readonly onDomain: (domain: string) => void;
};

export interface ClusterStreams {
  /** Adds the route to the `raw` scope of serve(). */
  routes(scope: RawScope): void;
  /** The number of connected gateways. */
  readonly readers: number;
  end(): void;
}

const MAX_READERS = 256;
/** A gateway that does not read is disconnected beyond this backlog; it reconnects and gets the complete state. */
const MAX_BEHIND_BYTES = 16 * 1024 * 1024;
/** The interval of a check for template changes that no event reports, such as the return of a quarantined one. */
const TEMPLATES_MS = 30_000;
const EVENT_PAGE = 256;

type Shown = Exclude<keyof SandboxIDs, "owned">;

export function openClusterStreams({ apiKey, registry, claims, events, identity, load, templates, copies, names, onDomain }: StreamParts): ClusterStreams {
  const readers = new Set<ServerResponse>();
  /** Changes since the last frame. */
  let changed = new Map<string, Shown>();
  let isSoon = false;
  let knownTemplates = "";
  let seenEvent = 0;
  let stopAll: (() => void) | undefined;
  let isEnded = false;

  function send(frame: ClusterFrame): void {
    const text = `${JSON.stringify(frame)}\n`;
    for (const reader of readers) {
      if (reader.writableLength > MAX_BEHIND_BYTES) remove(reader, true);
      else reader.write(text);
    }
  }

  function flush(): void {
    isSoon = false;
    if (changed.size === 0) return;
    const sandboxes = { ...idsOf(changed), owned: ownedOf(changed.keys()) };
    changed = new Map();
    send({ kind: "change", sandboxes });
  }

  function ownedOf(ids: Iterable<string>): SandboxIDs["owned"] {
    return Object.fromEntries(
      [...ids].flatMap((sandboxID) => [ownedSandboxOf(registry.get(sandboxID))].flatMap((each) => (each === undefined ? [] : [[sandboxID, each]]))),
    );
  }

  /** Sends all changes of one event-loop tick in one frame. */
  function onChange(sandboxID: string, shown: Shown): void {
    changed.set(sandboxID, shown);
    if (isSoon) return;
    isSoon = true;
    setImmediate(flush);
  }

  const loadNow = (): NodeLoad => ({ ...load(), gateways: readers.size });
  const templatesFrame = (): ClusterFrame => ({ kind: "templates", templates: [...templates()], copies: [...copies()] });

  function sendTemplates(): void {
    const frame = templatesFrame();
    const text = JSON.stringify(frame);
    if (text === knownTemplates) return;
    knownTemplates = text;
    send(frame);
  }

  /** Most events concern sandboxes, and comparing thousands of templates for each of them would be expensive. */
  function onEvents(): void {
    const page = events.read(seenEvent, EVENT_PAGE);
    seenEvent = page.at(-1)?.id ?? seenEvent;
    if (page.some(({ type }) => /^(template|snapshot)\.|snapshotted$/.test(type))) sendTemplates();
    if (page.length === EVENT_PAGE) setImmediate(onEvents);
  }

  function start(): () => void {
    knownTemplates = JSON.stringify(templatesFrame());
    seenEvent = events.newest;
    // A moving sandbox is shown as leaving, so that gateways hold requests until it has arrived or stays.
    const stopWatching = registry.watch((sandboxID, shown) => onChange(sandboxID, claims.leaving.has(sandboxID) && shown !== "gone" ? "leaving" : shown));
    const stopClaims = claims.watch((sandboxID, isLeaving) => {
      const record = registry.get(sandboxID);
      onChange(sandboxID, isLeaving ? "leaving" : isOwned(record) ? shownState(record) : "gone");
    });
    const stopEvents = events.watch(onEvents);
    const stopNames = names.watch((records) => {
      // Templates are sent before the name, so that a gateway knows the snapshot that a name means.
      if (records.some(({ snapshotID, nodeID }) => snapshotID !== "" && nodeID === identity().nodeID)) sendTemplates();
      send({ kind: "names", names: [...records] });
    });
    const beat = setInterval(() => send({ kind: "beat", load: loadNow() }), BEAT_MS);
    const look = setInterval(sendTemplates, TEMPLATES_MS);
    return () => {
      stopWatching();
      stopClaims();
      stopEvents();
      stopNames();
      clearInterval(beat);
      clearInterval(look);
      changed = new Map();
    };
  }

  function remove(reader: ServerResponse, isStuck = false): void {
    readers.delete(reader);
    if (isStuck) reader.destroy();
    if (readers.size > 0) return;
    stopAll?.();
    stopAll = undefined;
  }

  function begin(reader: ServerResponse, version: number): void {
    stopAll ??= start();
    // Pending changes go to the other readers first, since the new reader's state already contains them.
    flush();
    reader.on("close", () => remove(reader));
    reader.on("error", () => remove(reader));
    reader.writeHead(200, { "content-type": "application/x-ndjson", "cache-control": "no-store" });
    readers.add(reader);
    const sandboxes: SandboxIDs = { running: [], paused: [], gone: [], leaving: [...claims.leaving.keys()], owned: {} };
    for (const record of registry.all()) {
      if (!isOwned(record)) continue;
      sandboxes[shownState(record)].push(record.sandboxID);
      const owned = ownedSandboxOf(record);
      if (owned !== undefined) sandboxes.owned[record.sandboxID] = owned;
    }
    const state: ClusterFrame = {
      kind: "state",
      version: Math.min(version, CLUSTER_VERSION),
      node: identity(),
      load: loadNow(),
      sandboxes,
      templates: [...templates()],
      copies: [...copies()],
      names: [...names.all()],
    };
    reader.write(`${JSON.stringify(state)}\n`);
  }

  return {
    routes(scope) {
      scope.get(STREAM_PATH, { exposeHeadRoute: false, config: { operation: "clusterStream", open: true } as object }, (request, reply) => {
        const given = request.headers["x-api-key"];
        // A gateway with another key gets this node's fingerprint, so that its operator sees both.
        if (!sameSecret(given === undefined ? undefined : String(given), apiKey))
          fail("UNAUTHENTICATED", "the API key in X-API-Key is not this deployment's", { details: { fingerprint: fingerprintOf(apiKey, "api-key") } });
        if (isEnded) throw new Failure("SHUTTING_DOWN", "the node is stopping", { retryAfterSeconds: 1 });
        if (readers.size >= MAX_READERS)
          throw new Failure("TOO_MANY_REQUESTS", `${MAX_READERS} gateways already read this node's state, the maximum`, { retryAfterSeconds: 5 });
        const query = streamQuery.safeParse(request.query);
        if (!query.success) fail("INVALID_REQUEST", `${STREAM_PATH}: expected ?version=N, optionally with &domain=HOST:PORT`);
        if (query.data.domain !== undefined) onDomain(query.data.domain);
        reply.hijack();
        begin(reply.raw, query.data.version);
      });
    },
    get readers() {
      return readers.size;
    },
    end() {
      isEnded = true;
      for (const reader of [...readers]) {
        remove(reader);
        reader.end();
      }
    },
  };
}

function idsOf(changed: ReadonlyMap<string, Shown>): Omit<SandboxIDs, "owned"> {
  const ids: Record<Shown, string[]> = { running: [], paused: [], gone: [], leaving: [] };
  for (const [sandboxID, shown] of changed) ids[shown].push(sandboxID);
  return ids;
}
