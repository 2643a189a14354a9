// Describes an object's cold copy from the master's route: device, owner, state and locator.
import { fail } from "@svc/contract/failures.ts";
import { namesOf } from "@svc/store/client/cold/bucket-names.ts";
import { encoded } from "@svc/store/client/cold/device-folder.ts";
import type { Masters, ObjectName } from "../masters/masters.ts";
import type { ColdTier } from "./cold-tier.ts";
import type { Device } from "./device.ts";

const PREFIX = "cold/";
const COMPLETE = 3;
const FILE_DIGITS = 8;

/** The file's path below the device's root. In a bucket this is a prefix of the object name, which also contains the writer's epoch. */
function locatorOf({ definition: { device_id: id, target } }: Device, file: bigint): string {
  const name = file.toString(16).padStart(FILE_DIGITS, "0");
  return target.type === "s3" ? `${namesOf("", encoded(id)).objects}${name}` : `${encoded(id)}/${name}`;
}

/** Returns null if the object has no cold copy. @throws STORE_KEY_NOT_FOUND if the object does not exist. */
export async function backingOf(object: ObjectName, masters: Masters, tier: ColdTier, tenant: string): Promise<object | null> {
  const route = (await masters.route(object)) ?? fail("STORE_KEY_NOT_FOUND", `object ${object.key} was not found`);
  const replica = route.replicas.find(({ segment }) => segment.startsWith(PREFIX));
  if (replica === undefined) return null;
  const diskID = replica.segment.slice(PREFIX.length);
  const devices = [...(await tier.list(tenant, {})), ...(tenant === "" ? [] : await tier.list("", {}))];
  const device = devices.find((each) => each.diskID === diskID);
  const { members } = await masters.members();
  const owner = members.find(({ clientID }) => clientID === replica.clientID);
  const isWhole = replica.status === COMPLETE;
  return {
    device_id: device?.definition.device_id ?? diskID,
    cold_tier_id: device?.definition.cold_tier_id ?? diskID,
    owner: { stable_id: owner?.stableID ?? replica.clientID, epoch: Number(owner?.epoch ?? 0n) },
    state: isWhole ? "materialized" : "pending_offload",
    locator: isWhole && device !== undefined ? locatorOf(device, replica.address) : null,
    length: Number(route.sizeBytes),
    // The checksum has 64 bits, which JSON numbers cannot hold, so it is sent as decimal text.
    checksum: route.checksum === undefined ? null : String(route.checksum),
  };
}
