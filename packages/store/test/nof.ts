// Helpers of the NOF tests: masters that allow NOF segments, their files, and their contents.
import type { TestMaster } from "./master.ts";

export const MIB = 2 ** 20;
/** Short leases and release times, so that evictions come soon; a killed holder is noticed soon. */
export const nofFlags = (...more: readonly string[]): string[] => [
  "--enable_nof=true",
  "--default_kv_lease_ttl=200",
  "--put_start_release_timeout_sec=1",
  "--store.suspect_after_ms=2500",
  ...more,
];

export type Buffered = {
  transport_endpoint_: string;
  buffer_descriptor: { size_: number; buffer_address_: number; protocol_: string; transport_endpoint_: string };
};
export type NofEntry = { ok: boolean; values?: Buffered[]; nof_values?: Buffered[]; disk_values?: unknown[]; local_disk_values?: unknown[] };

export async function nofEntry(master: Pick<TestMaster, "url">, key: string): Promise<NofEntry> {
  const answer = await fetch(`${master.url}/batch_query_keys?keys=${encodeURIComponent(key)}`);
  return ((await answer.json()) as { data: Record<string, NofEntry> }).data[key] as NofEntry;
}

export type Detail = {
  segment_name: string;
  segment_id: string;
  protocol: string;
  te_endpoint: string;
  size_bytes: number;
  allocator_used_bytes: number;
  readable?: boolean;
};
export async function nofDetails(master: Pick<TestMaster, "url">): Promise<Detail[]> {
  const { segments } = (await (await fetch(`${master.url}/get_segments_detail`)).json()) as { segments: Detail[] };
  return segments.filter(({ protocol }) => protocol === "nvmeof");
}
