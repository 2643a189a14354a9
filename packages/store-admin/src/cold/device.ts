// A cold-tier device: its owner, its state, whether it accepts new objects, and all transitions between its states.
import { fail } from "@svc/contract/failures.ts";
import type { DeviceTarget } from "@svc/store/client/cold/commands.ts";

/**
 * The definition given at creation. Creating the device again changes nothing if the definition is the same; otherwise it is a conflict.
 */
export type DeviceDefinition = {
  readonly stable_id: string;
  /** Its logical identity, which routes and placement use; `cold_tier_id` is an alias for people. */
  readonly device_id: string;
  readonly cold_tier_id: string;
  readonly kind: string;
  readonly target: DeviceTarget;
  readonly capacity_override_bytes: number | null;
  readonly tags: readonly string[];
};

//                  register              full / space freed
//  unregistered ────────────▶ healthy ◀──────────────────────▶ full
//    ▲   ▲                   │ ▲ ▲ └── disable ──▶ disabled_by_admin ◀── disable ──┘
//    │   └── unregister ─────┘ │ └────── enable ──────┘            (enable returns to full if the device is full)
//    │ unregister, no objects  │ register
//    └───────── draining ◀─────┴── drain, or unregister while it has objects: from healthy, full, disabled_by_admin
//  failed: its owner cannot use the device; entered from healthy and full, left by register or a successful probe
export const deviceStates = ["unregistered", "healthy", "full", "disabled_by_admin", "draining", "failed"] as const;
export type DeviceState = (typeof deviceStates)[number];

export type Device = {
  readonly definition: DeviceDefinition;
  readonly state: DeviceState;
  /** The epoch of the owner's start that serves the device; null while it is not registered. */
  readonly epoch: number | null;
  /** The master's name for the device; null before the first registration. */
  readonly diskID: string | null;
  readonly rootDir: string | null;
  readonly capacityBytes: number | null;
  readonly usedBytes: number;
  readonly reservedBytes: number;
  readonly failureCount: number;
  readonly lastError: string | null;
};

/** The owner's report about the device. */
export type Usage = {
  readonly diskID: string;
  readonly rootDir: string;
  readonly capacityBytes: number | null;
  readonly usedBytes: number;
  readonly reservedBytes: number;
};

/** `blocked` counts objects whose backing here is not pending_delete; `reclaimable` counts those of them with a hot replica. */
export type Holding = { readonly blocked: number; readonly reclaimable: number; readonly reservedBytes: number };

export type DeviceEvent =
  | { readonly type: "registered"; readonly epoch: number; readonly usage: Usage }
  | { readonly type: "probed"; readonly epoch: number; readonly usage: Usage }
  | { readonly type: "broke"; readonly epoch: number; readonly why: string }
  | { readonly type: "disable" | "enable" | "drain" }
  | { readonly type: "unregister"; readonly force: boolean; readonly holding: Holding };

export const created = (definition: DeviceDefinition): Device => ({
  definition,
  state: "unregistered",
  epoch: null,
  diskID: null,
  rootDir: rootDirOf(definition.target),
  capacityBytes: definition.capacity_override_bytes,
  usedBytes: 0,
  reservedBytes: 0,
  failureCount: 0,
  lastError: null,
});

export const hasSpace = ({ capacityBytes, usedBytes, reservedBytes }: Device): boolean => capacityBytes === null || usedBytes + reservedBytes < capacityBytes;
export const isSchedulable = (device: Device): boolean => device.state === "healthy" && hasSpace(device);
export const isSame = (one: DeviceDefinition, other: DeviceDefinition): boolean => JSON.stringify(canonical(one)) === JSON.stringify(canonical(other));

const canonical = ({ stable_id, device_id, cold_tier_id, kind, target, capacity_override_bytes, tags }: DeviceDefinition) => [
  stable_id,
  device_id,
  cold_tier_id,
  kind,
  target.type,
  target.type === "uuid" ? target.uuid : rootDirOf(target),
  capacity_override_bytes,
  [...tags].sort(),
];

/** Only the owner knows where a file system given by UUID is mounted. */
function rootDirOf(target: DeviceTarget): string | null {
  if (target.type === "uuid") return null;
  return target.type === "s3" ? target.url : target.path;
}

/**
 * @throws INVALID_REQUEST for a transition that the state does not allow, STORE_CONFLICT for a stale epoch or if objects would be stranded.
 */
export function advance(device: Device, event: DeviceEvent): Device {
  switch (event.type) {
    case "registered":
      if (device.epoch !== null && event.epoch < device.epoch) stale(device, event.epoch);
      return settled({ ...used(device, event.usage), state: "healthy", epoch: event.epoch, lastError: null });
    case "probed":
      if (device.epoch === null || event.epoch < device.epoch) stale(device, event.epoch);
      // A later start of the owner resumes service by itself, so its epoch is accepted.
      return settled({ ...used(device, event.usage), state: device.state === "failed" ? "healthy" : device.state, epoch: event.epoch, lastError: null });
    case "broke":
      if (event.epoch !== device.epoch) stale(device, event.epoch);
      return {
        ...device,
        // A failure does not override disabled_by_admin or draining.
        state: device.state === "healthy" || device.state === "full" ? "failed" : device.state,
        failureCount: device.failureCount + 1,
        lastError: event.why,
      };
    case "disable":
      if (device.state !== "healthy" && device.state !== "full" && device.state !== "disabled_by_admin") refuse(device, "disabled", "healthy or full");
      return { ...device, state: "disabled_by_admin" };
    case "enable":
      if (device.state !== "disabled_by_admin" && device.state !== "full" && device.state !== "healthy") refuse(device, "enabled", "disabled_by_admin or full");
      return settled({ ...device, state: "healthy" });
    case "drain":
      if (device.state === "unregistered") refuse(device, "drained", "registered");
      return { ...device, state: "draining" };
    case "unregister":
      return unregistered(device, event.force, event.holding);
  }
}

function unregistered(device: Device, force: boolean, { blocked, reclaimable, reservedBytes }: Holding): Device {
  const { device_id: id } = device.definition;
  if (device.state === "unregistered") return device;
  if (reservedBytes > 0) fail("STORE_CONFLICT", `device ${id} has ${reservedBytes} bytes reserved by operations in progress: try again once they have ended`);
  if (force && blocked !== reclaimable)
    fail("STORE_CONFLICT", `device ${id} has ${blocked - reclaimable} objects that are stored nowhere else: drain it first, or they would be lost`);
  if (!force && blocked > 0) return { ...device, state: "draining" };
  return { ...device, state: "unregistered", epoch: null, usedBytes: 0, reservedBytes: 0, lastError: null };
}

const used = (device: Device, { diskID, rootDir, capacityBytes, usedBytes, reservedBytes }: Usage): Device => ({
  ...device,
  diskID,
  rootDir,
  capacityBytes: device.definition.capacity_override_bytes ?? capacityBytes,
  usedBytes,
  reservedBytes,
});

/** Usage decides between healthy and full. */
function settled(device: Device): Device {
  if (device.state !== "healthy" && device.state !== "full") return device;
  return { ...device, state: hasSpace(device) ? "healthy" : "full" };
}

function stale(device: Device, epoch: number): never {
  return fail("STORE_CONFLICT", `stale epoch ${epoch}: device ${device.definition.device_id} belongs to epoch ${device.epoch}`);
}

function refuse(device: Device, what: string, expected: string): never {
  return fail("INVALID_REQUEST", `device ${device.definition.device_id} is ${device.state} and cannot be ${what}: expected one that is ${expected}`);
}
