// Engines from etcd: each key below a prefix is an engine, its value an entry as JSON. With a lease, an engine that ends takes its key along.
import { openEtcd } from "../etcd/client.ts";
import { etcdEndpoints } from "../etcd/endpoints.ts";
import type { KeyValue } from "../etcd/wire.ts";
import { engineName, type NamedEntry, named, readEntry } from "./engine-entry.ts";
import { type OpenSource, onlyOptions } from "./source.ts";

const PREFIX = "/svc/engines/";

export function openEtcdSource(address: string, options: URLSearchParams, bad: (why: string) => never): OpenSource {
  const endpoints = address.split(",").filter((one) => one !== "");
  const parsed = etcdEndpoints.min(1).safeParse(endpoints);
  if (!parsed.success) bad(`expected etcd:http://HOST:PORT of etcd's client port: ${parsed.error?.issues[0]?.message}`);
  onlyOptions(options, ["prefix"], bad);
  const prefix = options.get("prefix") ?? PREFIX;
  return ({ onEntries, onTrouble, log }) => {
    const etcd = openEtcd({ endpoints });
    const entries = new Map<string, NamedEntry>();
    const put = ({ key, value }: KeyValue) => {
      try {
        const name = key.slice(prefix.length);
        entries.set(key, named(readEntry(JSON.parse(value), key), engineName.safeParse(name).success ? name : undefined));
      } catch (error) {
        entries.delete(key);
        log.warn({ key, reason: (error as Error).message }, "an engine in etcd cannot be read");
      }
    };
    const report = () => onEntries([...entries.values()]);
    etcd.watch(prefix, {
      onAll(all) {
        entries.clear();
        for (const entry of all) put(entry);
        report();
      },
      onEvents(events) {
        for (const event of events) {
          if (event.type === "put") put(event.entry);
          else entries.delete(event.key);
        }
        report();
      },
      onInterrupted: (reason) => onTrouble(`etcd: ${reason}`),
      onCurrent: report,
    });
    return { close: () => etcd.close() };
  };
}
