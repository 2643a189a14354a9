// Declares nodes dead whose lease expired some time ago: every member watches, and a compare-and-set decides.
import { type clusterKeys, type NodeRecord, nodeRecord } from "@svc/contract/cluster-records.ts";
import { asFailure } from "@svc/contract/failures.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import type { Log } from "@svc/kit/log.ts";
import { compareAndSet } from "./enter.ts";

export type ReaperParts = {
  readonly etcd: Pick<Etcd, "watch" | "transact" | "get">;
  readonly keys: ReturnType<typeof clusterKeys>;
  readonly nodeID: string;
  readonly deadAfterMs: number;
  /** A node without a lease of its own must not judge others, because its view of etcd may be stale. */
  readonly isHeld: () => boolean;
  readonly log: Log;
  readonly nowMs?: () => number;
};

const LOOK_MS = 500;

type Known = { readonly record: NodeRecord; readonly modRevision: bigint };

export function openReaper({ etcd, keys, nodeID, deadAfterMs, isHeld, log, nowMs = () => performance.now() }: ReaperParts): { close(): Promise<void> } {
  const nodes = new Map<string, Known>();
  const lives = new Set<string>();
  /** Times since when a serving node has had no lease, as long as this process watched without interruption. */
  const missingSinceMs = new Map<string, number>();

  function takeNode({ key, value, modRevision }: KeyValue): void {
    const parsed = nodeRecord.safeParse(JSON.parse(value));
    if (parsed.success) nodes.set(key.slice(keys.nodes.length), { record: parsed.data, modRevision });
  }
  const watches = [
    etcd.watch(keys.nodes, {
      onAll(entries) {
        nodes.clear();
        entries.forEach(takeNode);
      },
      onEvents(events) {
        for (const event of events) {
          if (event.type === "put") takeNode(event.entry);
          else nodes.delete(event.key.slice(keys.nodes.length));
        }
      },
    }),
    etcd.watch(keys.lives, {
      onAll(entries) {
        lives.clear();
        for (const { key } of entries) lives.add(key.slice(keys.lives.length));
      },
      onEvents(events) {
        for (const event of events) {
          const id = event.key.slice(keys.lives.length);
          if (event.type === "put") lives.add(id);
          else lives.delete(id);
        }
      },
    }),
  ];

  async function declare(id: string, { record, modRevision }: Known, sinceMs: number): Promise<void> {
    const reason = `its lease has been over for ${Math.round((nowMs() - sinceMs) / 1000)} s; declared by ${nodeID}`;
    const at = await compareAndSet({ etcd, keys }, modRevision, { ...record, state: "dead", changedAtMs: Date.now(), reason });
    if (at !== undefined) log.error({ nodeID: id, generation: record.generation, reason }, "a node was declared dead: its running sandboxes are lost");
  }

  function look(): void {
    const sees = isHeld() && watches.every((watch) => watch.isCurrent);
    for (const id of missingSinceMs.keys()) if (!sees || lives.has(id) || nodes.get(id)?.record.state !== "serving") missingSinceMs.delete(id);
    if (!sees) return;
    for (const [id, known] of nodes) {
      if (id === nodeID || lives.has(id) || known.record.state !== "serving") continue;
      const sinceMs = missingSinceMs.get(id) ?? nowMs();
      missingSinceMs.set(id, sinceMs);
      if (nowMs() - sinceMs < deadAfterMs) continue;
      missingSinceMs.delete(id);
      void declare(id, known, sinceMs).catch((error: unknown) =>
        log.warn({ nodeID: id, reason: asFailure(error).message }, "a node could not be declared dead; retrying"),
      );
    }
  }
  const timer = setInterval(look, LOOK_MS);

  return {
    async close() {
      clearInterval(timer);
      await Promise.all(watches.map((watch) => watch.close()));
    },
  };
}
