// Shares the keys that envd accepts among the nodes, because a sandbox started on one node may be resumed on another.
import { type clusterKeys, initKeyRecord } from "@svc/contract/cluster-records.ts";
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { Watch } from "@svc/kit/etcd/watch.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import type { Log } from "@svc/kit/log.ts";
import { type InitKeys, initKeyName } from "../agent/init-keys.ts";
import { seal, unseal } from "../secrets/seal.ts";

export type RingParts = {
  readonly etcd: Pick<Etcd, "get" | "put" | "list" | "watch">;
  readonly keys: ReturnType<typeof clusterKeys>;
  readonly secret: string;
  readonly initKeys: InitKeys;
  readonly log: Log;
};

const PURPOSE = "init-key";

/** Returns once this node's keys are in etcd and the others' keys are known here; later keys follow by a watch. */
export async function shareInitKeys({ etcd, keys, secret, initKeys, log }: RingParts): Promise<Watch> {
  // I34
  function take({ key, value }: Pick<KeyValue, "key" | "value">): void {
    const record = initKeyRecord.safeParse(parsed(value));
    const seed = record.success ? unseal(record.data.sealed, secret, PURPOSE) : undefined;
    if (seed === undefined || initKeyName(seed) !== key.slice(keys.initKeys.length))
      log.error({ key }, "a key of envd in etcd cannot be read: sandboxes under it cannot be resumed here");
    else initKeys.add(seed);
  }
  const { entries, revision } = await etcd.list(keys.initKeys);
  for (const entry of entries) take(entry);
  const known = new Set(entries.map(({ key }) => key));
  for (const seed of initKeys.seeds()) {
    const key = keys.initKey(initKeyName(seed));
    if (!known.has(key)) await etcd.put(key, JSON.stringify({ version: 1, sealed: seal(seed, secret, PURPOSE) }));
  }
  return etcd.watch(keys.initKeys, {
    fromRevision: revision,
    onAll: (all) => all.forEach(take),
    onEvents(events) {
      for (const event of events) if (event.type === "put") take(event.entry);
    },
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
