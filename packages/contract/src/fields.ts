// Members that several operations of the sandbox platform share, with their limits.
import { z } from "zod";

export const limits = {
  metadataKeys: 64,
  metadataBytes: 16 * 1024,
  envKeys: 256,
  envBytes: 128 * 1024,
  nameLength: 128,
  listPage: 100,
} as const;

/** A constant in every answer, since clients require the member; it has no meaning here. */
export const CLIENT_ID = "svc";
const clientEnding = `-${CLIENT_ID}`;

/** JavaScript SDKs before 1.5 name a sandbox `<sandboxID>-<clientID>`, in paths, hosts and headers; our ids contain no hyphen. */
export function bareSandboxID(text: string): string {
  return text.endsWith(clientEnding) ? text.slice(0, -clientEnding.length) : text;
}

export const sandboxID = z.string().min(1).max(64).overwrite(bareSandboxID).describe("Identifier of the sandbox");
/** The id of a build or of a snapshot. */
export const sourceID = z
  .string()
  .regex(/^([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|snap[0-9a-f]{20})$/, "Svc-Build-Id: expected the id of a build or of a snapshot");
/** A server's own limit is its setting sandbox.max_timeout_seconds, which its error message states. */
export const seconds = z.number().int().min(0);

export const sandboxAnswer = z.object({
  sandboxID: z.string(),
  templateID: z.string(),
  clientID: z.string(),
  envdVersion: z.string(),
  alias: z.string().optional(),
  envdAccessToken: z.string().optional(),
  trafficAccessToken: z.string().nullish(),
  domain: z.string().nullish(),
});
export type SandboxAnswer = z.output<typeof sandboxAnswer>;
