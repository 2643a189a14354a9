// Devices in the admin server's records, separate per tenant. A change applies only to the version that was read.
import { fail } from "@svc/contract/failures.ts";
import type { Records, Version } from "../metadata/records.ts";
import { advance, created, type Device, type DeviceDefinition, type DeviceEvent, isSame, isSchedulable } from "./device.ts";
import type { DeviceFilter } from "./input.ts";

const MAX_TRIES = 20;
const MAX_DEVICES = 10_000;

type Kept = { readonly device: Device; readonly version: Version };

export class Devices {
  readonly #records: Records;
  readonly #prefix: string;

  /** `tenant` selects the devices; "" selects those without a tenant. */
  constructor(records: Records, tenant: string) {
    this.#records = records;
    this.#prefix = `cold/${Buffer.from(tenant).toString("hex")}/devices/`;
  }

  /** Returns whether the device is new. @throws STORE_CONFLICT if the id exists with another definition. */
  async create(definition: DeviceDefinition): Promise<{ device: Device; isNew: boolean }> {
    if ((await this.#records.list(this.#prefix)).length >= MAX_DEVICES) fail("TOO_MANY_REQUESTS", `there are ${MAX_DEVICES} devices, the maximum`);
    const device = created(definition);
    const isNew = (await this.#records.put(this.#keyOf(definition.cold_tier_id), JSON.stringify(device), 0n)) !== undefined;
    if (isNew) return { device, isNew };
    const { device: there } = await this.#read(definition.cold_tier_id);
    if (!isSame(there.definition, definition)) fail("STORE_CONFLICT", `device ${definition.cold_tier_id} already exists with another definition`);
    return { device: there, isNew: false };
  }

  async list({ stableID, state, schedulable, kind }: DeviceFilter = {}): Promise<Device[]> {
    const devices = (await this.#records.list(this.#prefix)).map(({ value }) => JSON.parse(value) as Device);
    return devices.filter(
      (device) =>
        (stableID === undefined || device.definition.stable_id === stableID) &&
        (state === undefined || device.state === state) &&
        (kind === undefined || device.definition.kind === kind) &&
        (schedulable === undefined || isSchedulable(device) === schedulable),
    );
  }

  /** @throws STORE_KEY_NOT_FOUND. */
  async get(id: string): Promise<Device> {
    return (await this.#read(id)).device;
  }

  /** Checks that the transition is allowed. @throws what `advance` throws. */
  check(device: Device, event: DeviceEvent): void {
    advance(device, event);
  }

  /** Applies the event to the currently recorded state. If `advance` throws, nothing changes. */
  async move(id: string, event: DeviceEvent): Promise<Device> {
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const { device, version } = await this.#read(id);
      const moved = advance(device, event);
      if ((await this.#records.put(this.#keyOf(id), JSON.stringify(moved), version)) !== undefined) return moved;
    }
    return fail("METADATA_UNAVAILABLE", `device ${id} was changed ${MAX_TRIES} times by others while this server tried to change it; try again`);
  }

  async #read(id: string): Promise<Kept> {
    const entry = (await this.#records.get(this.#keyOf(id))) ?? fail("STORE_KEY_NOT_FOUND", `cold-tier device ${id} was not found`);
    return { device: JSON.parse(entry.value) as Device, version: entry.version };
  }

  #keyOf(id: string): string {
    return `${this.#prefix}${id}`;
  }
}
