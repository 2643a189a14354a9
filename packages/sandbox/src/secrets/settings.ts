// The settings of secrets, of the egress proxy and of identity tokens.
import { z } from "zod";

export const egressSettings = z.object({
  ca_file: z.string(),
  issuer: z.union([z.literal(""), z.url({ protocol: /^https?$/ })]),
  max_secrets: z.number().int().min(1).max(10_000),
});
export type EgressSettings = z.output<typeof egressSettings>;
