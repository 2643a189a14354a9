// What the master's HTTP says about keys: where their bytes lie, without a lease.
import { ask, tenantQuery, type Words } from "./words.ts";

/** Below the longest request that a master takes. */
const MAX_QUERY_BYTES = 16 * 1024;
const MAX_KEYS = 256;

export type Holder = { readonly endpoint: string; readonly address: string; readonly sizeBytes: number; readonly protocol: string };
export type KeyEntry = { readonly key: string; readonly sizeBytes: number; readonly replicas: readonly Holder[] };

type Buffered = { transport_endpoint_: string; buffer_descriptor: { size_: number; buffer_address_: number; protocol_: string } };
type Wire = {
  data: Record<string, { ok: boolean; values?: Buffered[]; nof_values?: Buffered[] }>;
};

/** Of those that are there, in the order of `keys`: their replicas in memory and NOF segments. */
export async function entriesOf(words: Words, keys: readonly string[]): Promise<KeyEntry[]> {
  const found = new Map<string, KeyEntry>();
  for (const page of pages(keys)) {
    const { data } = (await (await ask(words, `/batch_query_keys?${tenantQuery(words)}keys=${page.map(encodeURIComponent).join(",")}`)).json()) as Wire;
    for (const [key, { ok, values = [], nof_values: nofs = [] }] of Object.entries(data)) {
      if (!ok) continue;
      const replicas = [...values, ...nofs].map(({ transport_endpoint_: endpoint, buffer_descriptor: buffer }) => ({
        endpoint,
        address: `0x${BigInt(buffer.buffer_address_).toString(16)}`,
        sizeBytes: buffer.size_,
        protocol: buffer.protocol_,
      }));
      found.set(key, { key, sizeBytes: replicas[0]?.sizeBytes ?? 0, replicas });
    }
  }
  return keys.flatMap((key) => found.get(key) ?? []);
}

function* pages(keys: readonly string[]): Generator<string[]> {
  let page: string[] = [];
  let bytes = 0;
  for (const key of keys) {
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
