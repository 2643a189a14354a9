// The wire format of etcd's JSON gateway: bytes as base64, 64-bit numbers as text.
import { z } from "zod";

export type KeyValue = {
  readonly key: string;
  readonly value: string;
  readonly createRevision: bigint;
  readonly modRevision: bigint;
  /** The number of writes since the key was created; it starts at 1. */
  readonly version: bigint;
  /** Undefined for a key without a lease. */
  readonly leaseID: string | undefined;
};

export const encode = (text: string): string => Buffer.from(text, "utf8").toString("base64");
const text64 = z
  .string()
  .default("")
  .transform((text) => Buffer.from(text, "base64").toString("utf8"));
/** The gateway omits a number that is 0. */
export const int64 = z
  .union([z.string().regex(/^-?\d{1,19}$/), z.number().int()])
  .default("0")
  .transform((text) => BigInt(text));

export const header = z.object({ revision: int64 });

export const keyValue = z.object({ key: text64, value: text64, create_revision: int64, mod_revision: int64, version: int64, lease: int64 }).transform(
  ({ key, value, create_revision, mod_revision, version, lease }): KeyValue => ({
    key,
    value,
    createRevision: create_revision,
    modRevision: mod_revision,
    version,
    leaseID: lease === 0n ? undefined : String(lease),
  }),
);

export const rangeAnswer = z.object({ header: header.optional(), kvs: z.array(keyValue).default([]), more: z.boolean().default(false) });
export const putAnswer = z.object({ header: header.optional() });
export const deleteAnswer = z.object({ header: header.optional(), deleted: int64 });

/** The first key after all keys that begin with `prefix`. */
export function behind(prefix: string): string {
  const bytes = Buffer.from(prefix, "utf8");
  const at = bytes.findLastIndex((byte) => byte < 0xff);
  // etcd reads "\0" as the end of the range as "every key from the first on".
  if (at === -1) return encode("\0");
  bytes[at] = (bytes[at] as number) + 1;
  return bytes.subarray(0, at + 1).toString("base64");
}
