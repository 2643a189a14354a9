// Input of requests about cold-tier devices: the body of a creation, and the filters of a list.
import { fail } from "@svc/contract/failures.ts";
import { bucketURL } from "@svc/store/client/cold/commands.ts";
import { z } from "zod";
import { truthOf } from "../http/route.ts";
import { type DeviceDefinition, type DeviceState, deviceStates } from "./device.ts";

const MAX_NAME = 256;
const MAX_PATH = 4096;
const MAX_URL = 512;
const MAX_TAGS = 64;
export const deviceKinds = ["ssd", "nfs", "s3"] as const;

const name = (most: number) =>
  z
    .string()
    .max(most)
    .refine((text) => text.trim() !== "", "must not be blank");

const identity = name(MAX_NAME).refine((id) => !/[/\0]/.test(id) && id !== "." && id !== "..", "must not have a slash, or be . or ..");

const target = z.discriminatedUnion("type", [
  z.strictObject({
    type: z.literal("directory"),
    path: name(MAX_PATH).refine((path) => path.startsWith("/") && !path.split("/").includes(".."), "expected an absolute path without .."),
  }),
  z.strictObject({ type: z.literal("uuid"), uuid: z.string().regex(/^[0-9A-Za-z-]{1,64}$/, "expected a filesystem's UUID") }),
  z.strictObject({ type: z.literal("s3"), url: name(MAX_URL).regex(bucketURL, "expected s3://BUCKET or s3://BUCKET/PREFIX, without a slash at the end") }),
]);

export const deviceBody = z
  .strictObject({
    stable_id: name(MAX_NAME),
    device_id: identity.nullish(),
    cold_tier_id: identity,
    kind: z.enum(deviceKinds),
    target,
    capacity_override_bytes: z.number().int("expected whole bytes").min(1, "must be greater than 0").nullish(),
    tags: z.array(name(MAX_NAME)).max(MAX_TAGS).nullish(),
  })
  .refine(({ kind, target: { type } }) => (kind === "s3") === (type === "s3"), {
    path: ["target"],
    message: "a device of kind s3 has a target of type s3, and no other device has one",
  })
  .transform(
    ({ device_id, capacity_override_bytes, tags, ...rest }): DeviceDefinition => ({
      ...rest,
      device_id: device_id ?? rest.cold_tier_id,
      capacity_override_bytes: capacity_override_bytes ?? null,
      tags: tags ?? [],
    }),
  );

export type DeviceFilter = { readonly stableID?: string; readonly state?: DeviceState; readonly schedulable?: boolean; readonly kind?: string };

const truths = ["1", "true", "TRUE", "yes", "YES", "0", "false", "FALSE", "no", "NO"];

const noFields = z.strictObject({});
const flags = (names: readonly string[]) => z.strictObject(Object.fromEntries(names.map((each) => [each, z.boolean().nullish()])));

export const bodies = {
  none: noFields,
  register: flags(["scan_existing", "dry_run"]),
  unregister: flags(["dry_run", "force"]),
  disable: z.strictObject({ reason: z.string().max(1024).nullish() }),
  drain: z.strictObject({
    dry_run: z.boolean().nullish(),
    migration_task_executor: name(MAX_NAME).nullish(),
    migration_target_segments: z.array(name(MAX_PATH)).max(64).nullish(),
    migration_max_retries: z.number().int().min(0, "must be 0 or more").nullish(),
  }),
  trigger: z.strictObject({
    stable_id: name(MAX_NAME),
    max_tasks: z.number().int("expected a whole number").min(1, "must be greater than 0").max(1_000_000).nullish(),
  }),
} as const;

/** @throws INVALID_REQUEST for a filter that no device can match. */
export function filterOf(search: URLSearchParams): DeviceFilter {
  const [stableID, state, schedulable, kind] = ["stable_id", "state", "schedulable", "kind"].map((each) => search.get(each));
  const wrong = (what: string, expected: readonly string[], given: string) =>
    fail("INVALID_REQUEST", `${what}: expected one of ${expected.join(", ")}, got ${JSON.stringify(given.slice(0, 100))}`);
  const known = deviceStates.find((each) => each === state);
  if (typeof state === "string" && known === undefined) wrong("state", deviceStates, state);
  if (typeof kind === "string" && !deviceKinds.some((each) => each === kind)) wrong("kind", deviceKinds, kind);
  if (typeof schedulable === "string" && !truths.includes(schedulable)) wrong("schedulable", ["true", "false"], schedulable);
  return {
    ...(typeof stableID === "string" ? { stableID } : {}),
    ...(known === undefined ? {} : { state: known }),
    ...(typeof schedulable === "string" ? { schedulable: truthOf(schedulable, false) } : {}),
    ...(typeof kind === "string" ? { kind } : {}),
  };
}
