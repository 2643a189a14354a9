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
  currentVersion: z.number().int().describe("1, and one more with each new value"),
  metadata: z.record(z.string(), z.string()),
  createdAt: z.string().describe("RFC 3339"),
  updatedAt: z.string().describe("RFC 3339"),
});
export type Secret = z.output<typeof secret>;

const secretID = z.string().min(1).max(256).describe("Its id or name");
const onStore = ["INVALID_REQUEST", "UNAUTHENTICATED", "SECRETS_DAMAGED", "NOT_OFFERED"] as const;

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
  failures: ["UNAUTHENTICATED", "NOT_OFFERED"],
});
export type EgressAuthority = { certificate: string; fingerprint: string; expiresAt: string };

export const secretOperations = { createSecret, listSecrets, getSecret, updateSecret, deleteSecret, getEgressAuthority } as const;

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
