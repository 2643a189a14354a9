// Mirrors the etcd records below one prefix in a map; a record that cannot be read is logged and left out.
import type { Etcd } from "@svc/kit/etcd/client.ts";
import type { Watch } from "@svc/kit/etcd/watch.ts";
import type { KeyValue } from "@svc/kit/etcd/wire.ts";
import type { Log } from "@svc/kit/log.ts";
import type { z } from "zod";

export type FollowedOptions<T> = {
  readonly etcd: Pick<Etcd, "watch">;
  readonly prefix: string;
  readonly shape: z.ZodType<T>;
  /** Keyed by the part of the etcd key after the prefix. */
  readonly into: Map<string, T>;
  /** The log message for a record that cannot be read; it says what is left out and with which effect. */
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
