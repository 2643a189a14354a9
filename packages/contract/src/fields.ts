// Members that several operations of the sandbox platform share, with their bounds.
import { z } from "zod";

export const limits = {
  metadataKeys: 64,
  metadataBytes: 16 * 1024,
  envKeys: 256,
  envBytes: 128 * 1024,
  nameLength: 128,
  listPage: 100,
} as const;

export const sandboxID = z.string().min(1).max(64).describe("Identifier of the sandbox");
/** A server's own bound is its setting sandbox.max_timeout_seconds: its refusal says the number. */
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
