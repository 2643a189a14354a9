// Secrets: values that the node inserts into requests at egress and that no sandbox ever holds, in E2B's form.
import { z } from "zod";
import { operation } from "./operation.ts";

export const secretLimits = {
  nameLength: 128,
  valueLength: 16_384,
  metadataEntries: 32,
  metadataKeyBytes: 128,
  metadataValueBytes: 1024,
  metadataBytes: 8192,
  page: 100,
};

/** The prefix of ids, which no name may have. */
export const SECRET_ID_PREFIX = "sec_";

const name = z
  .string()
  .min(1)
  .max(secretLimits.nameLength)
  .regex(/^[^{}/\\\p{Cc}\s]+$/u, "a secret's name has no spaces, control characters, '{', '}', '/' and '\\'")
  .transform((text) => text.toLowerCase())
  .refine((text) => !text.startsWith(SECRET_ID_PREFIX), `names that begin with ${SECRET_ID_PREFIX} are reserved for ids`);

const value = z
  .string()
  .min(1)
  .max(secretLimits.valueLength)
  // It becomes part of a header.
  .regex(/^[\t\x20-\x7e\x80-\xff]*$/, "has characters that no header may have, such as line breaks")
  .describe("Write-only: no answer contains it");

const metadata = z
  .record(z.string().min(1), z.string())
  .refine((map) => Object.keys(map).length <= secretLimits.metadataEntries, `metadata: at most ${secretLimits.metadataEntries} entries`)
  .refine(
    (map) =>
      Object.entries(map).every(
        ([key, text]) => Buffer.byteLength(key) <= secretLimits.metadataKeyBytes && Buffer.byteLength(text) <= secretLimits.metadataValueBytes,
      ),
    `metadata: keys have at most ${secretLimits.metadataKeyBytes} bytes, values ${secretLimits.metadataValueBytes}`,
  )
  .refine((map) => Buffer.byteLength(JSON.stringify(map)) <= secretLimits.metadataBytes, `metadata: at most ${secretLimits.metadataBytes} bytes in all`);

export const secret = z.object({
  secretID: z.string(),
  name: z.string(),
  tenant: z.string().optional().describe("The tenant that it belongs to; absent for the deployment's own"),
  currentVersion: z.number().int().describe("1, and one more with each new value"),
  metadata: z.record(z.string(), z.string()),
  createdAt: z.string().describe("RFC 3339"),
  updatedAt: z.string().describe("RFC 3339"),
});
export type Secret = z.output<typeof secret>;

const secretID = z.string().min(1).max(256).describe("Its id, or its name in the tenant of the key that asks");
const onStore = ["INVALID_REQUEST", "UNAUTHENTICATED", "SECRETS_DAMAGED"] as const;

export const createSecret = operation({
  name: "createSecret",
  method: "POST",
  path: "/secrets",
  summary: "Stores a secret and its first value",
  input: z.object({ name, value, metadata: metadata.nullish() }),
  output: secret,
  success: 201,
  credential: "apiKey",
  failures: [...onStore, "SECRET_EXISTS", "TOO_MANY_REQUESTS", "DISK_FULL"],
});

export const listSecrets = operation({
  name: "listSecrets",
  method: "GET",
  path: "/secrets",
  summary: "Lists the secrets by name, page by page; the header x-next-token names the next page",
  input: z.object({
    limit: z.coerce.number().int().min(1).max(secretLimits.page).default(secretLimits.page),
    nextToken: z.string().max(512).optional(),
  }),
  output: z.array(secret),
  success: 200,
  credential: "apiKey",
  failures: onStore,
});

export const getSecret = operation({
  name: "getSecret",
  method: "GET",
  path: "/secrets/{secretID}",
  summary: "One secret without its value, by id or name",
  input: z.object({ secretID }),
  output: secret,
  success: 200,
  credential: "apiKey",
  failures: [...onStore, "SECRET_NOT_FOUND"],
});

export const updateSecret = operation({
  name: "updateSecret",
  method: "POST",
  path: "/secrets/{secretID}",
  summary: "Replaces a secret's value, also for sandboxes that use it now, and its metadata where given",
  input: z.object({ secretID, value, metadata: metadata.nullish() }),
  output: secret,
  success: 200,
  credential: "apiKey",
  failures: [...onStore, "SECRET_NOT_FOUND", "DISK_FULL"],
});

export const deleteSecret = operation({
  name: "deleteSecret",
  method: "DELETE",
  path: "/secrets/{secretID}",
  summary: "Deletes a secret; requests whose rules name it fail from now on",
  input: z.object({ secretID }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: [...onStore, "SECRET_NOT_FOUND", "DISK_FULL"],
});

export const getEgressAuthority = operation({
  name: "getEgressAuthority",
  method: "GET",
  path: "/egress/ca",
  summary: "The certificate of the authority that sandboxes trust for hosts with rules",
  input: z.object({}),
  output: z.object({ certificate: z.string().describe("PEM"), fingerprint: z.string().describe("SHA-256"), expiresAt: z.string().describe("RFC 3339") }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "SETTING_INVALID"],
});
export type EgressAuthority = { certificate: string; fingerprint: string; expiresAt: string };

export const secretOperations = { createSecret, listSecrets, getSecret, updateSecret, deleteSecret, getEgressAuthority } as const;

/**
 * A secret as nodes give it to each other through a gateway: the value is sealed under a key derived from the token seed, which every node has and
 * no gateway. The later record of a name wins; that of a deleted secret stays for a time, so that no node brings the secret back.
 */
export const secretRecord = z.object({
  secretID: z.string().startsWith(SECRET_ID_PREFIX).max(64),
  /** That of a tenant's secret is TENANT/NAME, which no secret of the deployment itself can have. */
  name: z.string().min(1).max(secretLimits.nameLength),
  currentVersion: z.int().min(1),
  metadata: z.record(z.string(), z.string()),
  createdAt: z.string().max(32),
  updatedAt: z.iso.datetime(),
  /** Orders two changes of the same millisecond in the same way on every node. */
  writeID: z.string().max(32),
  /** Null: it was deleted. */
  sealed: z.string().max(65_536).nullable(),
});
export type SecretRecord = z.output<typeof secretRecord>;

/** A record without its contents. */
export const secretStamp = secretRecord.pick({ name: true, updatedAt: true, writeID: true }).extend({ isDeleted: z.boolean() });
export type SecretStamp = z.output<typeof secretStamp>;

export const MAX_SECRET_RECORDS = 10_000;
/** Bounds what one call carries, which has to fit into a request's body. */
export const secretBatch = { records: 100, bytes: 512 * 1024, names: 8 } as const;

/** Sent to a node by a gateway. */
export const settleSecrets = operation({
  name: "settleSecrets",
  method: "POST",
  path: "/cluster/secrets",
  summary:
    "Gives this node sealed secrets, of which it keeps the later records; answers with the records of the names that are given, and with the stamps of all if requested",
  input: z.object({
    records: z.array(secretRecord).max(secretBatch.records).default([]),
    names: z.array(z.string().max(secretLimits.nameLength)).max(secretBatch.names).default([]),
    stamps: z.boolean().default(false),
  }),
  output: z.object({
    stamps: z.array(secretStamp),
    records: z.array(secretRecord),
    /** Names whose records this node cannot open, because they were sealed under another seed. */
    refused: z.array(z.string()),
  }),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "SECRETS_DAMAGED", "DISK_FULL"],
});

export const stampOf = ({ name, updatedAt, writeID, sealed }: SecretRecord): SecretStamp => ({ name, updatedAt, writeID, isDeleted: sealed === null });

/** Returns true if `a` replaces `b`; the same answer on every node. */
export function isLaterSecret(a: SecretStamp, b: SecretStamp | undefined): boolean {
  if (b === undefined) return true;
  const order = Date.parse(a.updatedAt) - Date.parse(b.updatedAt) || Number(a.isDeleted) - Number(b.isDeleted);
  return order > 0 || (order === 0 && a.writeID > b.writeID);
}

/** A token of the sandbox's identity that rules can insert: its audience, and E2B's name of its form. */
export const identityToken = z.object({ audience: z.string().min(1).max(1024), tokenType: z.literal("JWT-SVID") });
export type IdentityToken = z.output<typeof identityToken>;

const MAX_TOKENS = 32;
export const iam = z.object({
  tokens: z
    .record(
      z
        .string()
        .min(1)
        .max(128)
        .regex(/^[^{}\p{Cc}]+$/u, "a token's name has no '{', '}' and control characters"),
      identityToken,
    )
    .refine((map) => Object.keys(map).length <= MAX_TOKENS, `iam.tokens: at most ${MAX_TOKENS} entries`)
    .nullish(),
});
