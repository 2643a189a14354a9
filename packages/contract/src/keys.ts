// Named keys: operations that create, change and revoke them, in the shapes of E2B's API, and the record that servers keep of each.
import { z } from "zod";
import { operation } from "./operation.ts";

/** From least to most: each role may do what the ones before it may. */
export const roles = ["viewer", "member", "admin"] as const;
export type Role = (typeof roles)[number];

/** The tenant that everything belongs to which the deployment's own key made. No named key can be in it. */
export const DEPLOYMENT_TENANT = "deployment";
export const MAX_KEYS = 20_000;

export const tenantName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9-]{0,62}$/, "tenant: expected a-z, 0-9 and '-', 63 characters or fewer, beginning with a letter or digit")
  .refine((name) => name !== DEPLOYMENT_TENANT, `tenant: '${DEPLOYMENT_TENANT}' is reserved for the deployment's own key; choose another name`);

const name = z
  .string()
  .min(1)
  .max(128)
  .regex(/^[^\p{Cc}]*$/u, "name: expected text without control characters");

/** IPv4 or IPv6, with or without a prefix length; /0 is valid and means every address of that family. */
const sourceAddress = z
  .string()
  .max(49)
  .refine((text) => /^(\d{1,3}\.){3}\d{1,3}(\/\d{1,2})?$|^[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(\/\d{1,3})?$/.test(text), {
    message: "sourceAddresses: expected addresses or ranges such as 203.0.113.7, 10.0.0.0/8 or 2001:db8::/32",
  });
const sourceAddresses = z.array(sourceAddress).max(32);
const expiresAt = z.iso.datetime({ offset: true });

/** One of a key's secrets. A rotation gives a key a second one, and the first one an end. */
const keySecret = z.looseObject({
  /** SHA-256 of the key, in hexadecimal; the key itself is never stored. */
  hash: z.string().regex(/^[0-9a-f]{64}$/),
  /** The same of its second spelling, `e2b_` and hexadecimal digits. */
  sdkHash: z.string().regex(/^[0-9a-f]{64}$/),
  /** The last characters of the second spelling, by which people tell keys apart. */
  suffix: z.string().max(8),
  /** Not valid from then on; absent: as long as the key itself. */
  untilMs: z.number().optional(),
});

/** A key as servers store it. A later version only adds members. */
export const keyRecord = z.looseObject({
  version: z.literal(1),
  id: z.uuid(),
  name: z.string(),
  tenant: z.string(),
  role: z.enum(roles),
  secrets: z.array(keySecret).min(1).max(2),
  /** Absent: from every address. */
  sourceAddresses: z.array(z.string()).optional(),
  createdAtMs: z.number(),
  expiresAtMs: z.number().optional(),
  revokedAtMs: z.number().optional(),
});
export type KeyRecord = z.output<typeof keyRecord>;

/** How E2B shows a key after its creation. */
const mask = z.object({
  prefix: z.string(),
  valueLength: z.number().int(),
  maskedValuePrefix: z.string(),
  maskedValueSuffix: z.string(),
});

export const shownKey = z.object({
  id: z.string(),
  name: z.string(),
  mask,
  createdAt: z.string().describe("RFC 3339"),
  createdBy: z.null().describe("Always null: svc has no users"),
  lastUsed: z.string().nullable().describe("RFC 3339, to the hour; null: never"),
  tenant: z.string(),
  role: z.enum(roles),
  state: z.enum(["active", "expired", "revoked"]),
  expiresAt: z.string().nullable().describe("RFC 3339; null: never"),
  sourceAddresses: z.array(z.string()).describe("Empty: from every address"),
});
export type ShownKey = z.output<typeof shownKey>;

const withSecret = shownKey.extend({
  key: z.string().describe("The key in the spelling that E2B's SDKs accept; shown only now"),
  apiKey: z.string().describe("The same key in svc's own spelling; shown only now"),
});
export type CreatedKey = z.output<typeof withSecret>;

const apiKeyID = z.string().min(1).max(128).describe("Its id, or its name where only one key of the tenant has it");
const onKeys = ["INVALID_REQUEST", "UNAUTHENTICATED", "ACCESS_DENIED", "ETCD_UNAVAILABLE"] as const;

export const createKey = operation({
  name: "createKey",
  method: "POST",
  path: "/api-keys",
  summary: "Creates a named key; only this answer has the key itself",
  input: z.object({
    name,
    tenant: tenantName.optional().describe("Default: the tenant of the key that asks"),
    role: z.enum(roles).default("member"),
    expiresAt: expiresAt.nullish(),
    sourceAddresses: sourceAddresses.nullish().describe("Addresses and ranges from which alone the key is accepted"),
  }),
  output: withSecret,
  success: 201,
  credential: "apiKey",
  failures: [...onKeys, "TOO_MANY_REQUESTS", "DISK_FULL"],
});

export const listKeys = operation({
  name: "listKeys",
  method: "GET",
  path: "/api-keys",
  summary: "Lists the named keys without the keys themselves, oldest first",
  input: z.object({}),
  output: z.array(shownKey),
  success: 200,
  credential: "apiKey",
  failures: onKeys,
});

export const getKey = operation({
  name: "getKey",
  method: "GET",
  path: "/api-keys/{apiKeyID}",
  summary: "One named key, without the key itself",
  input: z.object({ apiKeyID }),
  output: shownKey,
  success: 200,
  credential: "apiKey",
  failures: [...onKeys, "KEY_NOT_FOUND"],
});

export const updateKey = operation({
  name: "updateKey",
  method: "PATCH",
  path: "/api-keys/{apiKeyID}",
  summary: "Changes the name of a key, its role, its end or its source addresses",
  input: z.object({
    apiKeyID,
    name: name.optional(),
    role: z.enum(roles).optional(),
    expiresAt: expiresAt.nullish().describe("null: it does not expire"),
    sourceAddresses: sourceAddresses.nullish().describe("null or empty: from every address"),
  }),
  output: shownKey,
  success: 200,
  credential: "apiKey",
  failures: [...onKeys, "KEY_NOT_FOUND", "DISK_FULL"],
});

export const deleteKey = operation({
  name: "deleteKey",
  method: "DELETE",
  path: "/api-keys/{apiKeyID}",
  summary: "Revokes a key for good, and ends the streams that it has open",
  input: z.object({ apiKeyID }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: [...onKeys, "KEY_NOT_FOUND", "DISK_FULL"],
});

export const rotateKey = operation({
  name: "rotateKey",
  method: "POST",
  path: "/api-keys/{apiKeyID}/rotate",
  summary: "Gives a key a new secret; the one before stays valid for the overlap",
  input: z.object({
    apiKeyID,
    overlapSeconds: z
      .int()
      .min(0)
      .max(30 * 24 * 3600)
      .default(0),
  }),
  output: withSecret,
  success: 201,
  credential: "apiKey",
  failures: [...onKeys, "KEY_NOT_FOUND", "DISK_FULL"],
});

export const listTeams = operation({
  name: "listTeams",
  method: "GET",
  path: "/teams",
  summary: "Lists the tenants that the key sees, as E2B's teams",
  input: z.object({}),
  output: z.array(
    z.object({
      teamID: z.string(),
      name: z.string(),
      apiKey: z.string().describe("Always empty: keys are not stored"),
      isDefault: z.boolean(),
    }),
  ),
  success: 200,
  credential: "apiKey",
  failures: onKeys,
});

export const keyOperations = { createKey, listKeys, getKey, updateKey, deleteKey, rotateKey, listTeams } as const;
