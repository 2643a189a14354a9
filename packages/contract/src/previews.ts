// Previews: names under which a port of a sandbox is reached, https://NAME.DOMAIN beside https://PORT-ID.DOMAIN.
import { z } from "zod";
import { sandboxID } from "./fields.ts";
import { operation } from "./operation.ts";

/** Labels that lead to a server itself, or may one day. */
const reserved: readonly string[] = ["api", "console", "sandbox", "svc", "www"];

/** It begins with a letter, so that it never reads as PORT-ID. */
export const previewName = z
  .string()
  .regex(/^[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$/, "expected a-z, 0-9 and '-', 63 characters or fewer, the first a letter and the last not '-'")
  .refine((name) => !reserved.includes(name), `is reserved; these names are: ${reserved.join(", ")}`);

const port = z.number().int().min(1).max(65_535);

export const preview = z.object({
  name: z.string(),
  sandboxID: z.string(),
  port,
  host: z.string().describe("The host name and port of its URL"),
  createdAt: z.string().describe("RFC 3339"),
  endedAt: z.string().nullable().describe("When its sandbox ended; another sandbox can then take the name"),
});
export type Preview = z.output<typeof preview>;

const onPreview = ["INVALID_REQUEST", "UNAUTHENTICATED"] as const;
const name = z.string().min(1).max(63);

export const createPreview = operation({
  name: "createPreview",
  method: "POST",
  path: "/previews",
  summary: "Makes a port of a sandbox reachable at NAME.DOMAIN, under the access rules of the port; the same call again changes nothing",
  input: z.object({ name: previewName, sandboxID, port, replace: z.boolean().default(false).describe("Take the name from another port or sandbox") }),
  output: preview,
  success: 201,
  credential: "apiKey",
  failures: [...onPreview, "SANDBOX_NOT_FOUND", "PREVIEW_EXISTS", "TOO_MANY_REQUESTS", "DISK_FULL"],
});

export const listPreviews = operation({
  name: "listPreviews",
  method: "GET",
  path: "/previews",
  summary: "Lists the previews by name",
  input: z.object({ sandboxID: z.string().max(64).optional().describe("Of this sandbox alone") }),
  output: z.array(preview),
  success: 200,
  credential: "apiKey",
  failures: onPreview,
});

export const getPreview = operation({
  name: "getPreview",
  method: "GET",
  path: "/previews/{name}",
  summary: "One preview",
  input: z.object({ name }),
  output: preview,
  success: 200,
  credential: "apiKey",
  failures: [...onPreview, "PREVIEW_NOT_FOUND"],
});

export const deletePreview = operation({
  name: "deletePreview",
  method: "DELETE",
  path: "/previews/{name}",
  summary: "Removes a preview's name; its sandbox is not changed",
  input: z.object({ name }),
  output: z.undefined(),
  success: 204,
  credential: "apiKey",
  failures: [...onPreview, "PREVIEW_NOT_FOUND", "DISK_FULL"],
});

export const previewOperations = { createPreview, listPreviews, getPreview, deletePreview } as const;

export const MAX_PREVIEWS = 1_000;
/** Records of removed names come on top. */
export const MAX_PREVIEW_RECORDS = 2 * MAX_PREVIEWS;

/** A preview as nodes keep it. The later record of a name wins; that of a removed one stays for a time, so that no node brings it back. */
export const previewRecord = z.object({
  name,
  sandboxID: z.string().max(64),
  port,
  createdAtMs: z.number().int().min(0),
  updatedAtMs: z.number().int().min(0),
  endedAtMs: z.number().int().min(0).nullable(),
  isDeleted: z.boolean(),
});
export type PreviewRecord = z.output<typeof previewRecord>;

/** Sent to a node by a gateway. */
export const settlePreviews = operation({
  name: "settlePreviews",
  method: "POST",
  path: "/cluster/previews",
  summary: "Gives this node the deployment's previews, of which it keeps the later records, and answers with all that it then knows",
  input: z.object({
    previews: z.array(previewRecord).max(MAX_PREVIEW_RECORDS),
    claim: previewRecord.optional().describe("Refused if another port or sandbox has the name; this node decides for the deployment"),
  }),
  output: z.array(previewRecord),
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "INVALID_REQUEST", "PREVIEW_EXISTS", "TOO_MANY_REQUESTS", "DISK_FULL"],
});

export const isLivingPreview = ({ isDeleted }: PreviewRecord): boolean => !isDeleted;
export const isSamePreview = (a: PreviewRecord, b: PreviewRecord): boolean => a.sandboxID === b.sandboxID && a.port === b.port;

/** Returns true if `a` replaces `b`; the same answer on every node. */
export function isLaterPreview(a: PreviewRecord, b: PreviewRecord | undefined): boolean {
  if (b === undefined) return true;
  const order = a.updatedAtMs - b.updatedAtMs || Number(a.isDeleted) - Number(b.isDeleted);
  if (order !== 0) return order > 0;
  const [one, other] = [`${a.sandboxID}:${a.port}`, `${b.sandboxID}:${b.port}`];
  return one !== other ? one > other : a.endedAtMs !== null && b.endedAtMs === null;
}

export function shownPreview({ name: label, sandboxID: id, port: its, createdAtMs, endedAtMs }: PreviewRecord, domain: string): Preview {
  const endedAt = endedAtMs === null ? null : new Date(endedAtMs).toISOString();
  return { name: label, sandboxID: id, port: its, host: `${label}.${domain}`, createdAt: new Date(createdAtMs).toISOString(), endedAt };
}
