// The other nodes of the deployment, mirrored from etcd in memory, so that a fetch from one of them needs no request to etcd.
import { type clusterKeys, liveRecord } from "@svc/contract/cluster-records.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import type { PeerClient } from "@svc/kit/peers/peer-client.ts";
import type { Neighbour, Neighbours } from "../snapshot-transfer/neighbour.ts";

export type OpenNeighbours = Neighbours & { close(): Promise<void> };

export function openNeighbours(etcd: Pick<Etcd, "watch">, keys: ReturnType<typeof clusterKeys>, nodeID: string, peers: PeerClient): OpenNeighbours {
  const fetch = peers.fetch.bind(peers);
  const members = new Set<string>();
  const lives = new Map<string, Neighbour>();
  const reads = [Promise.withResolvers<void>(), Promise.withResolvers<void>()] as const;

  function takeLife({ key, value }: KeyValue): void {
    const id = key.slice(keys.lives.length);
    const { data } = liveRecord.safeParse(JSON.parse(value));
    if (data?.url === undefined) lives.delete(id);
    else lives.set(id, { nodeID: id, url: data.url.replace(/\/$/, ""), fetch });
  }

  const watches = [
    etcd.watch(keys.nodes, {
      onAll(entries) {
        members.clear();
        for (const { key } of entries) members.add(key.slice(keys.nodes.length));
        reads[0].resolve();
      },
      onEvents(events) {
        for (const event of events) {
          const id = event.key.slice(keys.nodes.length);
          if (event.type === "put") members.add(id);
          else members.delete(id);
        }
      },
    }),
    etcd.watch(keys.lives, {
      onAll(entries) {
        lives.clear();
        entries.forEach(takeLife);
        reads[1].resolve();
      },
      onEvents(events) {
        for (const event of events) {
          if (event.type === "put") takeLife(event.entry);
          else lives.delete(event.key.slice(keys.lives.length));
        }
      },
    }),
  ];

  return {
    read: Promise.all(reads.map(({ promise }) => promise)).then(() => undefined),
    get live() {
      return [...lives.values()].filter((each) => each.nodeID !== nodeID);
    },
    get away() {
      return [...members].filter((each) => each !== nodeID && !lives.has(each));
    },
    async close() {
      await Promise.all(watches.map((watch) => watch.close()));
    },
  };
}
