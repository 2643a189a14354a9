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
    const isNew = (await this.#records.put(this.#keyOf(definition.device_id), JSON.stringify(device), 0n)) !== undefined;
    if (isNew) return { device, isNew };
    const { device: there } = await this.#read(definition.device_id);
    if (!isSame(there.definition, definition)) fail("STORE_CONFLICT", `device ${definition.device_id} already exists with another definition`);
    return { device: there, isNew: false };
  }

  async list({ stableID, state, schedulable, kind }: DeviceFilter = {}): Promise<Device[]> {
    return (await this.#all()).filter(
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
      if ((await this.#records.put(this.#keyOf(device.definition.device_id), JSON.stringify(moved), version)) !== undefined) return moved;
    }
    return fail("METADATA_UNAVAILABLE", `device ${id} was changed ${MAX_TRIES} times by others while this server tried to change it; try again`);
  }

  /** Returns the identity that a name stands for, or the name itself if no device has it. @throws STORE_CONFLICT for an alias that several have. */
  async identityOf(name: string): Promise<string> {
    return (await this.#records.get(this.#keyOf(name))) === undefined ? this.#named(name) : name;
  }

  /** Finds a device by its identity, or by an alias that no other device has. */
  async #read(id: string): Promise<Kept> {
    const entry = (await this.#records.get(this.#keyOf(id))) ?? (await this.#records.get(this.#keyOf(await this.#named(id))));
    if (entry === undefined) return fail("STORE_KEY_NOT_FOUND", `cold-tier device ${id} was not found`);
    return { device: deviceFrom(entry.value), version: entry.version };
  }

  async #named(alias: string): Promise<string> {
    const named = (await this.#all()).flatMap(({ definition }) => (definition.cold_tier_id === alias ? [definition.device_id] : []));
    if (named.length > 1)
      fail("STORE_CONFLICT", `${alias} is the alias of ${named.length} cold-tier devices: name one by its device_id, of ${named.join(", ")}`);
    return named[0] ?? alias;
  }

  async #all(): Promise<Device[]> {
    return (await this.#records.list(this.#prefix)).map(({ value }) => deviceFrom(value));
  }

  #keyOf(id: string): string {
    return `${this.#prefix}${id}`;
  }
}

/** Records from before the identity had its own field contain only the alias. */
function deviceFrom(text: string): Device {
  const device = JSON.parse(text) as Device;
  const { definition } = device;
  return { ...device, definition: { ...definition, device_id: definition.device_id ?? definition.cold_tier_id } };
}
