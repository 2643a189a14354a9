// Removes what the retention rules name, and then what nobody needs: by `svc gc`, and at an interval.
//
// Each removal is the operation that a client would call, so it is complete or not begun after a kill, and nothing that runs loses its files.

import { asFailure } from "@svc/contract/failures.ts";
import type { GCAnswer, RemovedItem } from "@svc/contract/gc.ts";
import type { Log } from "@svc/kit/log.ts";
import type { Checkpoints } from "../../records/checkpoints.ts";
import type { Registry } from "../../records/registry.ts";
import type { Snapshots } from "../../records/snapshots.ts";
import type { SandboxRecord } from "../../records/state.ts";
import { type Item, parseRule, type Rule, selectedBy } from "../../retention/rules.ts";
import type { RetentionSettings } from "../../retention/settings.ts";
import type { SnapshotTransfer } from "../../snapshot-transfer/open-snapshot-transfer.ts";
import type { Templates } from "../../template/open-templates.ts";
import type { Ends } from "../supply/end.ts";
import type { NamedSnapshots } from "../verbs/named-snapshots.ts";

export type GCParts = {
  readonly settings: RetentionSettings;
  readonly nodeID: () => string;
  readonly registry: Pick<Registry, "all">;
  readonly snapshots: Pick<Snapshots, "list">;
  readonly named: Pick<NamedSnapshots, "delete">;
  readonly templates: Pick<Templates, "builder" | "collect">;
  readonly transfer: Pick<SnapshotTransfer, "collect" | "hasStorage">;
  readonly checkpoints: Pick<Checkpoints, "find" | "remove">;
  readonly ends: Pick<Ends, "endIf">;
  /** The templates and snapshots that the pool's settings name. */
  readonly pooled: ReadonlyMap<string, number>;
  readonly wallMs: () => number;
  readonly log: Log;
};

type Kind = RemovedItem["kind"];
type Found = { readonly kind: Kind; readonly items: readonly Item[]; remove(item: Item): Promise<boolean> };

/** The number of removals of one call: a gateway waits some seconds for it. */
const PER_CALL = 100;

export interface GC {
  run(dryRun: boolean): Promise<GCAnswer>;
  start(): void;
  close(): Promise<void>;
}

export function openGC(parts: GCParts): GC {
  const { settings, nodeID, registry, snapshots, named, templates, transfer, checkpoints, ends, pooled, wallMs, log } = parts;
  const rules: Record<Kind, readonly Rule[]> = {
    snapshot: settings.snapshots.map(parseRule),
    paused: settings.paused.map(parseRule),
    build: settings.builds.map(parseRule),
  };
  let running: Promise<GCAnswer> | undefined;
  let timer: NodeJS.Timeout | undefined;

  function ofSnapshots(): Found {
    const starting = new Set([...registry.all()].flatMap(({ status, checkpointID }) => (status.state === "creating" ? (checkpointID ?? []) : [])));
    const items = snapshots.list({}).map(({ snapshotID, names, labels = {}, createdAtWallMs, sizeBytes, checkpointID }): Item => {
      const isPooled = [snapshotID, ...names, ...names.map((name) => name.replace(/:default$/, ""))].some((name) => pooled.has(name));
      const neededBy = isPooled ? "pool.templates" : starting.has(checkpointID) ? "a sandbox that starts from it" : undefined;
      return { id: snapshotID, names, labels, atMs: createdAtWallMs, sizeBytes, neededBy };
    });
    return { kind: "snapshot", items, remove: ({ id }) => named.delete(id) };
  }

  async function ofPaused(): Promise<Found> {
    const items: Item[] = [];
    for (const { sandboxID, status } of [...registry.all()]) {
      if (status.state !== "paused") continue;
      const sizeBytes = await checkpoints.find(status.kept.checkpointID).then(
        (found) => found.sizeBytes,
        () => 0,
      );
      items.push({ id: sandboxID, names: [], labels: status.claim.metadata, atMs: status.pausedAtWallMs, sizeBytes, neededBy: undefined });
    }
    // A sandbox that was resumed since the list was made is kept.
    const isStill = ({ status }: SandboxRecord, atMs: number) => status.state === "paused" && status.pausedAtWallMs === atMs;
    return { kind: "paused", items, remove: ({ id, atMs }) => ends.endIf(id, "killed", (record) => isStill(record, atMs)) };
  }

  function ofBuilds(): Found {
    const { builds } = templates.builder;
    const items = builds.templates().flatMap(({ templateID, name }) => {
      const tagged = new Map(builds.tags(templateID).map(({ buildID, tag }) => [buildID, tag]));
      const over = builds.of(templateID).filter(({ status }) => status === "ready" || status === "error");
      return over.map((build): Item => {
        const { buildID, updatedAtMs } = build;
        const tag = tagged.get(buildID);
        // The newest shows what became of a template's last build.
        const neededBy = tag !== undefined ? `tag ${tag}` : build === over[0] ? "its template, as the newest build" : undefined;
        return { id: buildID, names: [name], labels: {}, atMs: updatedAtMs, sizeBytes: 0, neededBy, group: templateID };
      });
    });
    return {
      kind: "build",
      items,
      async remove({ id, group = "" }) {
        if (builds.tags(group).some(({ buildID }) => buildID === id)) return false;
        const build = builds.of(group).find(({ buildID }) => buildID === id);
        if (build === undefined) return false;
        builds.removeBuild(id);
        if (build.result?.checkpointID !== undefined) await checkpoints.remove(build.result.checkpointID);
        return true;
      },
    };
  }

  async function collect(dryRun: boolean): Promise<GCAnswer> {
    const items: RemovedItem[] = [];
    const failed: GCAnswer["failed"] = [];
    let more = false;
    for (const { kind, items: all, remove } of [ofSnapshots(), await ofPaused(), ofBuilds()]) {
      const selected = selectedBy(rules[kind], all, wallMs());
      for (const { item, rule } of selected) {
        if (!dryRun && items.length + failed.length >= PER_CALL) {
          more = true;
          break;
        }
        const { id, names, sizeBytes, atMs } = item;
        const shown = { nodeID: nodeID(), kind, id, name: names[0] ?? "", sizeBytes, at: new Date(atMs).toISOString(), rule };
        if (dryRun) items.push(shown);
        else {
          try {
            if (!(await remove(item))) continue;
            items.push(shown);
            log.info({ kind, id, rule, sizeBytes }, "removed by a retention rule");
          } catch (error) {
            failed.push({ id, message: asFailure(error).message });
          }
        }
      }
    }
    if (dryRun) return { dryRun, items, failed, more, unneeded: [] };
    const collected = await templates.collect();
    const chunks = transfer.collect();
    chunks.then(
      (found) => found !== undefined && log.info({ ...found }, "chunks collected"),
      (error: unknown) => log.error({ err: error }, "unused chunks could not be collected"),
    );
    return { dryRun, items, failed, more, unneeded: [{ nodeID: nodeID(), ...collected, chunks: transfer.hasStorage ? "started" : "none" }] };
  }

  /** One run at a time; a dry run changes nothing. */
  function run(dryRun: boolean): Promise<GCAnswer> {
    if (dryRun) return collect(true);
    running ??= collect(false).finally(() => {
      running = undefined;
    });
    return running;
  }

  const hasRules = Object.values(rules).some((each) => each.length > 0);
  return {
    run,
    start() {
      if (settings.interval_seconds === 0 || !hasRules) return;
      const again = () =>
        void run(false).then(
          ({ failed }) => failed.length > 0 && log.warn({ failed }, "retention rules could not remove all that they name; retrying"),
          (error: unknown) => log.error({ err: error }, "retention rules could not be applied; retrying"),
        );
      timer = setInterval(again, settings.interval_seconds * 1000).unref();
    },
    async close() {
      clearInterval(timer);
      await running?.catch(() => undefined);
    },
  };
}
