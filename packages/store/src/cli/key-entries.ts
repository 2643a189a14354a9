// Reads the replicas of keys from the master's HTTP, without taking leases.
import { type Arguments, ask, tenantQuery } from "./arguments.ts";

/** A key that is longer cannot be named in a request: the master reads heads of at most 32 KiB. */
const MAX_KEY_BYTES = 30 * 1024;
/** Stays below the longest request that a master accepts. */
const MAX_QUERY_BYTES = 16 * 1024;
const MAX_KEYS = 256;

/** A replica. On a disk it has no address and is read through its endpoint; in the shared folder the endpoint is its path. */
export type Holder = {
  readonly medium: "memory" | "nof" | "disk" | "folder";
  readonly endpoint: string;
  readonly address: string | null;
  readonly sizeBytes: number;
  readonly protocol: string | null;
};
export type KeyEntry = { readonly key: string; readonly sizeBytes: number | null; readonly replicas: readonly Holder[] };

type Buffered = { transport_endpoint_: string; buffer_descriptor: { size_: number; buffer_address_: number; protocol_: string } };
type OnDisk = { transport_endpoint: string; object_size: number };
type InFolder = { file_path: string; object_size: number };
type Entry = { ok: boolean; values?: Buffered[]; nof_values?: Buffered[]; local_disk_values?: OnDisk[]; disk_values?: InFolder[] };
type Wire = { data: Record<string, Entry> };

/** Returns the replicas of the keys that exist, in the order of `keys`. A key too long to be asked about has none, and a size of null. */
export async function entriesOf(args: Arguments, keys: readonly string[]): Promise<KeyEntry[]> {
  const found = new Map<string, KeyEntry>();
  for (const page of pages(keys)) {
    const { data } = (await (await ask(args, `/batch_query_keys?${tenantQuery(args)}keys=${page.map(encodeURIComponent).join(",")}`)).json()) as Wire;
    for (const [key, entry] of Object.entries(data)) {
      if (!entry.ok) continue;
      const replicas = holdersOf(entry);
      found.set(key, { key, sizeBytes: replicas[0]?.sizeBytes ?? 0, replicas });
    }
  }
  return keys.flatMap((key) => found.get(key) ?? (isTooLong(key) ? { key, sizeBytes: null, replicas: [] } : []));
}

function holdersOf({ values = [], nof_values: nofs = [], local_disk_values: disks = [], disk_values: files = [] }: Entry): Holder[] {
  const buffered = (medium: "memory" | "nof") => (replica: Buffered) => ({
    medium,
    endpoint: replica.transport_endpoint_,
    address: `0x${BigInt(replica.buffer_descriptor.buffer_address_).toString(16)}`,
    sizeBytes: replica.buffer_descriptor.size_,
    protocol: replica.buffer_descriptor.protocol_,
  });
  const filed = { address: null, protocol: null };
  return [
    ...values.map(buffered("memory")),
    ...nofs.map(buffered("nof")),
    ...disks.map((file) => ({ medium: "disk" as const, endpoint: file.transport_endpoint, sizeBytes: file.object_size, ...filed })),
    ...files.map((file) => ({ medium: "folder" as const, endpoint: file.file_path, sizeBytes: file.object_size, ...filed })),
  ];
}

function* pages(keys: readonly string[]): Generator<string[]> {
  let page: string[] = [];
  let bytes = 0;
  for (const key of keys) {
    if (isTooLong(key)) continue;
    const more = encodeURIComponent(key).length + 1;
    if (page.length > 0 && (page.length >= MAX_KEYS || bytes + more > MAX_QUERY_BYTES)) {
      yield page;
      page = [];
      bytes = 0;
    }
    page.push(key);
    bytes += more;
  }
  if (page.length > 0) yield page;
}

const isTooLong = (key: string) => encodeURIComponent(key).length > MAX_KEY_BYTES;
