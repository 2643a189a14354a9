// Usage for billing and capacity: what sandboxes used over time, by key, tenant, sandbox or a label of their metadata.
import { z } from "zod";
import { operation } from "./operation.ts";

export const usageGroups = ["key", "tenant", "sandbox", "label"] as const;
export type UsageGroup = (typeof usageGroups)[number];

const amount = z.number().min(0);

export const usageAmounts = z.object({
  cpuSeconds: amount.describe("Processor time"),
  memoryGiBSeconds: amount.describe("Memory in use times the time that it was; paused sandboxes use none"),
  diskGiBSeconds: amount.describe("The sandbox's own files, or while it is paused its checkpoint, times the time"),
  networkInBytes: amount.describe("Bytes into the sandbox, by its network interface"),
  networkOutBytes: amount.describe("Bytes out of the sandbox, by its network interface"),
  runningSeconds: amount,
  pausedSeconds: amount,
});
export type UsageAmounts = z.output<typeof usageAmounts>;

export const NO_AMOUNTS: UsageAmounts = {
  cpuSeconds: 0,
  memoryGiBSeconds: 0,
  diskGiBSeconds: 0,
  networkInBytes: 0,
  networkOutBytes: 0,
  runningSeconds: 0,
  pausedSeconds: 0,
};
export const usageMembers = Object.keys(NO_AMOUNTS) as readonly (keyof UsageAmounts)[];

export function addAmounts(one: UsageAmounts, other: Readonly<Partial<UsageAmounts>>): UsageAmounts {
  return Object.fromEntries(usageMembers.map((name) => [name, one[name] + (other[name] ?? 0)])) as UsageAmounts;
}

export const usageRow = usageAmounts.extend({
  value: z.string().describe("The key's id, the tenant, the sandbox's id, or the label's value; '' for the deployment's own key, and without the label"),
  sandboxes: z.number().int().min(0).describe("The number of sandboxes; one that moved counts on each of its nodes"),
});
export type UsageRow = z.output<typeof usageRow>;

export const usageAnswer = z.object({
  from: z.string().describe("The beginning of the first hour"),
  to: z.string().describe("The end of the last hour"),
  rows: z.array(usageRow).describe("In the order of their value"),
  next: z.string().optional().describe("There are further rows: ask again with this as `after`"),
  missingNodes: z.array(z.string()).describe("Nodes whose usage is not included, because they do not answer"),
});
export type UsageAnswer = z.output<typeof usageAnswer>;

export const MAX_USAGE_ROWS = 1_000;

export const getUsage = operation({
  name: "getUsage",
  method: "GET",
  path: "/usage",
  summary: "What sandboxes used, running, paused and ended: sums over whole hours by key, tenant, sandbox or label",
  input: z
    .object({
      from: z.iso.datetime({ offset: true }).optional().describe("Rounded down to the hour; default: the first of this month, UTC"),
      to: z.iso.datetime({ offset: true }).optional().describe("Rounded up to the hour; default: now"),
      by: z.enum(usageGroups).default("tenant"),
      label: z.string().min(1).max(256).optional().describe("With by=label: the key in the sandboxes' metadata"),
      after: z.string().max(8_192).optional().describe("The `next` of the answer before"),
      limit: z.coerce.number().int().min(1).max(MAX_USAGE_ROWS).default(MAX_USAGE_ROWS),
    })
    .refine(({ by, label }) => (by === "label") === (label !== undefined), { message: "label: expected with by=label, and only then" })
    .refine(({ from, to }) => from === undefined || to === undefined || Date.parse(from) < Date.parse(to), { message: "to: expected a time after `from`" }),
  output: usageAnswer,
  success: 200,
  credential: "apiKey",
  failures: ["UNAUTHENTICATED", "ACCESS_DENIED", "INVALID_REQUEST"],
});
