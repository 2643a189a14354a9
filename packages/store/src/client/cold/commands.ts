// The commands that the cold tier's administrator sends to the client that owns a device, and their answers: JSON in both directions.
import { z } from "zod";

const MAX_NAME = 256;
const MAX_PATH = 4096;
const MAX_URL = 512;
/** s3://BUCKET or s3://BUCKET/PREFIX, in the one spelling by which definitions of devices are compared. */
export const bucketURL = /^s3:\/\/[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](\/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)*$/;

export const deviceTarget = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("directory"), path: z.string().min(1).max(MAX_PATH) }),
  z.strictObject({ type: z.literal("uuid"), uuid: z.string().min(1).max(64) }),
  z.strictObject({ type: z.literal("s3"), url: z.string().max(MAX_URL).regex(bucketURL) }),
]);

/** A device as its owner knows it. `tenant` is the tenant whose objects it takes; "" takes those of all. */
export const deviceSpec = z.strictObject({
  tenant: z.string().max(MAX_NAME),
  id: z
    .string()
    .min(1)
    .max(MAX_NAME)
    .refine((id) => id !== "." && id !== "..", "cannot be . or .."),
  target: deviceTarget,
  /** The capacity for objects; null is nine tenths of the file system, or no limit in a bucket. */
  capacityBytes: z.number().int().min(1).nullable(),
});

const device = { device: deviceSpec };

export const coldCommand = z.discriminatedUnion("command", [
  z.strictObject({ command: z.literal("register"), ...device, scans: z.boolean(), isDryRun: z.boolean() }),
  z.strictObject({ command: z.literal("unregister"), ...device }),
  z.strictObject({ command: z.literal("schedule"), ...device, isSchedulable: z.boolean() }),
  z.strictObject({ command: z.literal("probe"), ...device }),
  z.strictObject({ command: z.literal("collect"), ...device }),
  z.strictObject({ command: z.literal("offload"), ...device, most: z.number().int().min(1).max(1024) }),
  z.strictObject({ command: z.literal("quarantine"), ...device, from: z.number().int().min(0) }),
]);

export type DeviceTarget = z.output<typeof deviceTarget>;
export type DeviceSpec = z.output<typeof deviceSpec>;
export type ColdCommand = z.output<typeof coldCommand>;

/** `diskID` is the master's id of the device. `capacityBytes` is null for no limit. `isAnnounced`: the master knows every object there. */
export type DeviceReport = {
  readonly diskID: string;
  readonly rootDir: string;
  readonly capacityBytes: number | null;
  readonly usedBytes: number;
  readonly reservedBytes: number;
  readonly files: number;
  readonly isAnnounced: boolean;
  readonly isMounted: boolean;
  readonly trouble: string;
};

export type QuarantinedFile = {
  readonly area: "final" | "pending";
  readonly file_name: string;
  readonly encoded_path: string;
  readonly size_bytes: number;
  readonly modified_at_ms: number;
};

/** The answer to each command. */
export type ColdAnswers = {
  readonly register: DeviceReport;
  readonly unregister: { readonly isGone: true };
  readonly schedule: DeviceReport;
  readonly probe: DeviceReport;
  readonly collect: DeviceReport;
  readonly offload: { readonly stored: number; readonly hasEnded: boolean };
  readonly quarantine: { readonly rootDir: string; readonly count: number; readonly totalBytes: number; readonly files: readonly QuarantinedFile[] };
};

export type ColdAnswer<N extends keyof ColdAnswers = keyof ColdAnswers> =
  | { readonly ok: true; readonly value: ColdAnswers[N] }
  | { readonly ok: false; readonly failure: string; readonly message: string };
