// Records of etcd below one prefix as a map that follows them; one that cannot be read is named in the log and left out.
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { Watch } from "@svc/kit/etcd/watch.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import type { Log } from "@svc/kit/log.ts";
import type { z } from "zod";

export type FollowedOptions<T> = {
  readonly etcd: Pick<Etcd, "watch">;
  readonly prefix: string;
  readonly shape: z.ZodType<T>;
  /** By what follows the prefix in the key. */
  readonly into: Map<string, T>;
  /** Of a record that cannot be read: what is left out, and what that means. */
  readonly unread: string;
  readonly log: Log;
};

export function followRecords<T>({ etcd, prefix, shape, into, unread, log }: FollowedOptions<T>): Watch {
  function take({ key, value }: KeyValue): void {
    const id = key.slice(prefix.length);
    try {
      into.set(id, shape.parse(JSON.parse(value)));
    } catch (error) {
      into.delete(id);
      log.error({ key, err: error }, unread);
    }
  }
  return etcd.watch(prefix, {
    onAll(entries) {
      into.clear();
      entries.forEach(take);
    },
    onEvents(events) {
      for (const event of events) {
        if (event.type === "put") take(event.entry);
        else into.delete(event.key.slice(prefix.length));
      }
    },
  });
}
