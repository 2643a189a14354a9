// `svc store stat`, `replicas`, `segments`, `clients`, `summary`: read-only views of the master's state.
import { fail } from "@svc/contract/failures.ts";
import { byteSize, printJSON } from "@svc/contract/table.ts";
import { type Arguments, ask, openClient, operands, print } from "./arguments.ts";
import { entriesOf, type KeyEntry } from "./key-entries.ts";
import { metricsFrom } from "./master-metrics.ts";
import { whyMissing } from "./objects.ts";
import { type SegmentDetail, segmentDetails } from "./segments.ts";

type ClientDetail = { client_id: string; stable_id: string; epoch: number; heard: boolean };

export async function stat(args: Arguments): Promise<number> {
  const { key, sizeBytes, replicas } = await found(args);
  await using client = await openClient(args);
  const checksum = (await client.stat(key))?.checksum;
  const shown = checksum === undefined ? undefined : `xxh3:${checksum.toString(16).padStart(16, "0")}`;
  if (args.isJSON) printJSON({ key, sizeBytes, checksum: shown ?? null, replicas });
  else
    print(
      args,
      undefined,
      ["KEY", "SIZE", "CHECKSUM", "HOLDERS"],
      [[key, byteSize(sizeBytes), shown ?? "none: its writer gave none", replicas.map(({ endpoint }) => endpoint).join(", ")]],
    );
  return 0;
}

export async function replicas(args: Arguments): Promise<number> {
  const entry = await found(args);
  print(
    args,
    entry.replicas,
    ["HOLDER", "MEDIUM", "ADDRESS", "SIZE", "PROTOCOL"],
    entry.replicas.map(({ endpoint, medium, address, sizeBytes, protocol }) => [endpoint, medium, address ?? "-", byteSize(sizeBytes), protocol ?? "-"]),
  );
  return 0;
}

async function found(args: Arguments): Promise<KeyEntry & { readonly sizeBytes: number }> {
  const [key = ""] = operands(args, "KEY");
  const [entry] = await entriesOf(args, [key]);
  if (entry?.sizeBytes === null) return fail("INVALID_REQUEST", "KEY: the key is too long to be asked about: expected at most 30 KiB");
  if (entry !== undefined) return { ...entry, sizeBytes: entry.sizeBytes };
  await using client = await openClient(args);
  return fail("STORE_KEY_NOT_FOUND", await whyMissing(args, client, key));
}

export async function segments(args: Arguments): Promise<number> {
  operands(args);
  const rows = await segmentDetails(args);
  print(
    args,
    rows,
    ["SEGMENT", "ID", "SIZE", "USED", "PROTOCOL", "STATUS"],
    rows.map((row) => [
      row.segment_name,
      row.segment_id,
      byteSize(row.size_bytes),
      usage(row.allocator_used_bytes, row.size_bytes),
      row.protocol,
      statusOf(row),
    ]),
  );
  return 0;
}

export async function clients(args: Arguments): Promise<number> {
  operands(args);
  const { clients: known } = (await (await ask(args, "/api/v1/clients")).json()) as { clients: ClientDetail[] };
  const names = new Map(known.map((row) => [row.client_id, row]));
  // Clients without memory are listed too if they have a stable id, since they may execute migrations.
  const byID = new Map<string, SegmentDetail[]>(known.flatMap((row) => (row.epoch > 0 ? [[row.client_id, []]] : [])));
  for (const row of await segmentDetails(args)) byID.set(row.client_id, [...(byID.get(row.client_id) ?? []), row]);
  const rows = [...byID].map(([clientID, owned]) => ({
    clientID,
    stableID: names.get(clientID)?.stable_id ?? clientID,
    epoch: names.get(clientID)?.epoch ?? 0,
    names: [...new Set(owned.map((row) => row.segment_name))],
    segments: owned.length,
    sizeBytes: owned.reduce((sum, row) => sum + row.size_bytes, 0),
    usedBytes: owned.reduce((sum, row) => sum + row.allocator_used_bytes, 0),
    readable: owned.every((row) => row.readable !== false) && names.get(clientID)?.heard !== false,
  }));
  print(
    args,
    rows,
    ["CLIENT", "STABLE ID", "EPOCH", "NAME", "SEGMENTS", "SIZE", "USED", "STATE"],
    rows.map((row) => [
      row.clientID,
      row.stableID,
      row.epoch === 0 ? "none" : String(row.epoch),
      row.names.join(", "),
      String(row.segments),
      byteSize(row.sizeBytes),
      usage(row.usedBytes, row.sizeBytes),
      row.readable ? "heard" : "not heard",
    ]),
  );
  return 0;
}

export async function summary(args: Arguments): Promise<number> {
  operands(args);
  const [metrics, rows] = await Promise.all([metricsFrom(args), segmentDetails(args)]);
  const value = {
    url: args.url,
    keys: metrics.keys,
    usedBytes: metrics.usedBytes,
    capacityBytes: metrics.capacityBytes,
    unfinishedPuts: metrics.unfinishedPuts,
    evictedKeys: metrics.evictedKeys,
    lostKeys: metrics.lostKeys,
    holders: new Set(rows.map((row) => row.client_id)).size,
    segments: rows.length,
    unreadableSegments: rows.filter((row) => row.readable === false).length,
  };
  print(
    args,
    value,
    ["MASTER", "KEYS", "USED", "OF", "HOLDERS", "EVICTED", "LOST"],
    [
      [
        args.url,
        String(value.keys),
        usage(value.usedBytes, value.capacityBytes),
        byteSize(value.capacityBytes),
        `${value.holders}${value.unreadableSegments === 0 ? "" : ` (${value.unreadableSegments} segments not readable)`}`,
        String(value.evictedKeys),
        String(value.lostKeys),
      ],
    ],
  );
  return 0;
}

export const usage = (used: number, of: number) => `${byteSize(used)} (${of === 0 ? 0 : Math.round((100 * used) / of)} %)`;
const statusOf = (row: SegmentDetail) => (row.readable === false ? `${row.status}, not readable` : row.status);
