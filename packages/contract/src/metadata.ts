// Records that transfer engines keep in a metadata service, and the HTTP contract of such a service.
import { z } from "zod";

/** A PUT with this header expires after that number of milliseconds unless it is repeated; without the header, it stays until DELETE. */
export const LEASE_HEADER = "x-lease-ttl-ms";
export const MAX_KEY_BYTES = 4096;

export type SegmentKind = "ram" | "nvmeof";

export const segmentKey = (brand: string, kind: SegmentKind, name: string): string => `${brand}/${kind}/${name}`;
export const rpcMetaKey = (brand: string, serverName: string): string => `${brand}/rpc_meta/${serverName}`;

/** Addresses and keys are unsigned 64-bit numbers: numbers where they are exact, else bigints (see parseRecord). */
const unsigned = z.union([z.number().int().nonnegative(), z.bigint().nonnegative()]);

export const ramRecord = z.looseObject({
  server_name: z.string(),
  protocol: z.string(),
  devices: z.array(z.looseObject({ name: z.string(), lid: unsigned, gid: z.string() })),
  priority_matrix: z.record(z.string(), z.array(z.array(z.string()))),
  buffers: z.array(z.looseObject({ name: z.string(), addr: unsigned, length: unsigned, rkey: z.array(unsigned) })),
});

export const fileRecord = z.looseObject({
  server_name: z.string(),
  protocol: z.literal("nvmeof"),
  buffers: z.array(z.looseObject({ length: unsigned, file_path: z.string(), local_path_map: z.record(z.string(), z.string()) })),
});

export type RamRecord = z.output<typeof ramRecord>;
export type FileRecord = z.output<typeof fileRecord>;

/** Parses JSON, with whole numbers above 2^53 as bigints. */
export function parseRecord(text: string): unknown {
  return JSON.parse(text, ((_key: string, value: unknown, context?: { source?: string }) => {
    if (typeof value === "number" && !Number.isSafeInteger(value) && /^\d+$/.test(context?.source ?? "")) return BigInt(context?.source ?? 0);
    return value;
  }) as (key: string, value: unknown) => unknown);
}

/** The reverse of parseRecord. */
export function printRecord(record: unknown): string {
  const raw = (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON;
  return JSON.stringify(record, (_key, value: unknown) => (typeof value === "bigint" ? raw(String(value)) : value));
}
