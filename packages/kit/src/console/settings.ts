// The settings of the console; config/default.toml explains them.
import { z } from "zod";

const address = z.union([z.literal(""), z.url({ protocol: /^https?$/ })]).transform((text) => text.replace(/\/$/, ""));

export const consoleSettings = z.object({
  mode: z.enum(["on", "read-only", "off"]),
  hosts: z.array(z.string().regex(/^[a-z0-9.-]+$/, "expected a host name in lower case, without a port")).max(64),
  session_hours: z.number().int().min(1).max(720),
  indexer_url: address,
  store_url: address,
  store_admin_url: address,
  metadata_url: address,
});
export type ConsoleSettings = z.output<typeof consoleSettings>;
