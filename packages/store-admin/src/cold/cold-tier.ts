// Administrative operations on cold-tier devices. Owner and master make the final decision, so that no object is left on a removed device.
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import { openKeyedLock } from "@svc/kit/keyed-lock.ts";
import type { DeviceReport, QuarantinedFile } from "@svc/store/client/cold/commands.ts";
import type { ColdFile } from "@svc/store/rpc/shapes.ts";
import { coldSegment, type Masters } from "../masters/masters.ts";
import type { Records } from "../metadata/records.ts";
import type { Device, DeviceDefinition, Holding, Usage } from "./device.ts";
import { Devices } from "./devices.ts";
import type { DeviceFilter } from "./input.ts";
import { type Owner, type Owners, specOf } from "./owners.ts";

const MAX_VICTIMS = 64;
const MAX_QUARANTINED = 10_000;
const RELEASED_AT_ONCE = 256;
const MAX_WAITING = 64;

export type ColdTierParts = {
  readonly records: Records;
  readonly masters: Masters;
  readonly owners: Owners;
  /** A manual free stops when the used share of the device is below this. */
  readonly lowWatermark: number;
  /** Objects that are migrating away from a device, as (tenant, key) in the master's encoding. */
  moving(source: string): ReadonlySet<string>;
  /** Starts the migration of one object and returns its id. @throws TOO_MANY_REQUESTS. */
  move(file: ColdFile, source: string, targets: readonly string[], executor: string, maxRetries: number | undefined): Promise<string>;
};

export type Drain = {
  readonly isDryRun: boolean;
  readonly executor: string | undefined;
  readonly targets: readonly string[];
  readonly maxRetries: number | undefined;
};
export type Served = { readonly device: Device; readonly owner: Owner };
type Inside = { readonly files: ColdFile[]; readonly holding: Holding; readonly pendingDelete: number };

export class ColdTier {
  readonly #parts: ColdTierParts;
  /** Serializes the operations on one device. */
  readonly #lock = openKeyedLock("device", MAX_WAITING);

  constructor(parts: ColdTierParts) {
    this.#parts = parts;
  }

  devices(tenant: string): Devices {
    return new Devices(this.#parts.records, tenant);
  }

  /** With `checks` the device is created only if its owner is live and can use the folder. */
  async create(tenant: string, definition: DeviceDefinition, checks: boolean): Promise<{ device: Device; isNew: boolean }> {
    if (checks) await this.#parts.owners.check(definition, tenant);
    return this.devices(tenant).create(definition);
  }

  list(tenant: string, filter: DeviceFilter): Promise<Device[]> {
    return this.devices(tenant).list(filter);
  }

  /** Queries the owner about the device and records the answer. */
  async probe(tenant: string, id: string): Promise<Device> {
    const device = await this.devices(tenant).get(id);
    if (device.state === "unregistered") return device;
    try {
      return (await this.#serve(tenant, id)).device;
    } catch (error) {
      const why = asFailure(error).message;
      return this.devices(tenant).move(id, { type: "broke", epoch: device.epoch ?? 0, why });
    }
  }

  async register(tenant: string, id: string, scans: boolean, isDryRun: boolean): Promise<{ device: Device; epoch: number; files: number; usedBytes: number }> {
    return this.#serialized(tenant, id, async () => {
      const device = await this.devices(tenant).get(id);
      const owner = await this.#parts.owners.live(device.definition.stable_id);
      const report = await this.#parts.owners.ask(owner, { command: "register", device: specOf(device, tenant), scans, isDryRun });
      const { files, usedBytes } = report;
      if (isDryRun) return { device, epoch: owner.epoch, files, usedBytes };
      const registered = await this.devices(tenant).move(id, { type: "registered", epoch: owner.epoch, usage: usageOf(report) });
      return { device: registered, epoch: owner.epoch, files, usedBytes };
    });
  }

  async unregister(tenant: string, id: string, isDryRun: boolean, force: boolean): Promise<{ device: Device; holding: Holding }> {
    return this.#serialized(tenant, id, async () => {
      const none = { blocked: 0, reclaimable: 0, reservedBytes: 0 };
      const known = await this.devices(tenant).get(id);
      if (known.state === "unregistered") return { device: known, holding: none };
      const served = await this.#serve(tenant, id).catch((error: Failure) => this.#alreadyReleased(known, tenant, error));
      const { device, owner } = served;
      const { files, holding } = served.isGone ? { files: [], holding: none } : await this.#inside(device);
      if (isDryRun) return { device, holding };
      const devices = this.devices(tenant);
      // A forbidden unregister must fail before it changes anything.
      if (force || holding.blocked === 0) devices.check(device, { type: "unregister", force, holding });
      const draining = await devices.move(id, { type: "drain" });
      if (!served.isGone) await this.#schedule(tenant, draining, owner, false);
      if (!force && holding.blocked > 0) return { device: draining, holding };
      const left = holding.blocked - (await this.#release(device, files)).length;
      if (left > 0)
        fail("STORE_CONFLICT", `${left} objects of device ${id} are now stored nowhere else; they are still there, and it is draining: drain it first`);
      await this.#parts.owners.ask(owner, { command: "unregister", device: specOf(device, tenant) });
      return { device: await devices.move(id, { type: "unregister", force, holding: { ...none } }), holding };
    });
  }

  async setEnabled(tenant: string, id: string, isEnabled: boolean): Promise<Device> {
    return this.#serialized(tenant, id, async () => {
      const devices = this.devices(tenant);
      const type = isEnabled ? "enable" : "disable";
      const before = await devices.get(id);
      devices.check(before, { type });
      const served = await this.#serve(tenant, id).catch((error: Error) => {
        if (isEnabled) throw error;
        return undefined;
      });
      // The recorded state already decides about offloads; an unreachable owner learns of it when the device is enabled again.
      const moved = await devices.move(id, { type });
      if (served !== undefined) await this.#schedule(tenant, moved, served.owner, isEnabled);
      return moved;
    });
  }

  async drain(tenant: string, id: string, { isDryRun, executor, targets, maxRetries }: Drain) {
    return this.#serialized(tenant, id, async () => {
      const devices = this.devices(tenant);
      devices.check(await devices.get(id), { type: "drain" });
      const { device, owner } = await this.#serve(tenant, id);
      const { files, holding } = await this.#inside(device);
      const { blocked, reclaimable } = holding;
      const alone = blocked - reclaimable;
      if (alone > 0 && executor === undefined)
        fail("STORE_CONFLICT", `${alone} objects of device ${id} are stored nowhere else: give a migration_task_executor that moves them to memory`);
      const to = alone > 0 ? await this.#targets(executor as string, targets) : [];
      const counts = { blocked, reclaimable, marked: 0, collected: 0, submitted: 0 };
      if (isDryRun) return { device, ...counts };
      const draining = await devices.move(id, { type: "drain" });
      await this.#schedule(tenant, draining, owner, false);
      counts.marked = (await this.#release(device, files)).length;
      if (counts.marked > 0) counts.collected = await this.#collect(tenant, draining, owner, counts.marked);
      if (executor !== undefined) counts.submitted = await this.#moveAll(diskOf(device), to, executor, maxRetries);
      return { device: draining, ...counts };
    });
  }

  async blockers(tenant: string, id: string): Promise<{ device: Device; holding: Holding; pendingDelete: number; inflight: number }> {
    const known = await this.devices(tenant).get(id);
    if (known.state === "unregistered") return { device: known, holding: { blocked: 0, reclaimable: 0, reservedBytes: 0 }, pendingDelete: 0, inflight: 0 };
    const { device } = await this.#serve(tenant, id);
    const { holding, pendingDelete } = await this.#inside(device);
    return { device, holding, pendingDelete, inflight: await this.#inflight(device) };
  }

  /** Deletes released files immediately. */
  async collect(tenant: string, id: string): Promise<{ pendingDelete: number; collected: number }> {
    return this.#serialized(tenant, id, async () => {
      const { device, owner } = await this.#serve(tenant, id);
      const { pendingDelete } = await this.#inside(device);
      return { pendingDelete, collected: await this.#collect(tenant, device, owner, pendingDelete) };
    });
  }

  /** Releases files of objects that memory also holds, until the device is below its low watermark. */
  async free(tenant: string, id: string) {
    return this.#serialized(tenant, id, async () => {
      const { device, owner } = await this.#serve(tenant, id);
      const inflight = await this.#inflight(device);
      let over = device.usedBytes + device.reservedBytes - this.#parts.lowWatermark * (device.capacityBytes ?? Number.POSITIVE_INFINITY);
      const victims: ColdFile[] = [];
      const { files } = await this.#inside(device);
      for (const file of files) {
        if (over <= 0 || victims.length === MAX_VICTIMS) break;
        if (!file.isHot) continue;
        victims.push(file);
        over -= Number(file.sizeBytes);
      }
      const freed = (await this.#release(device, victims)).length;
      const collected = freed === 0 ? 0 : await this.#collect(tenant, device, owner, freed);
      const after = freed === 0 ? device : (await this.#serve(tenant, id)).device;
      const reached = after.usedBytes + after.reservedBytes <= this.#parts.lowWatermark * (after.capacityBytes ?? Number.POSITIVE_INFINITY);
      return { inflight, attempted: victims.length, freed, collected, skipped: victims.length - freed, reached };
    });
  }

  async quarantine(tenant: string, id: string): Promise<{ device: Device; rootDir: string; count: number; totalBytes: number; files: QuarantinedFile[] }> {
    const device = await this.devices(tenant).get(id);
    if (device.rootDir === null) fail("STORE_UNSUPPORTED", `device ${id} has no root directory before it is registered: its target is a file system's UUID`);
    const owner = await this.#parts.owners.live(device.definition.stable_id);
    const files: QuarantinedFile[] = [];
    while (true) {
      const page = await this.#parts.owners.ask(owner, { command: "quarantine", device: specOf(device, tenant), from: files.length });
      files.push(...page.files);
      if (page.files.length === 0 || files.length >= Math.min(page.count, MAX_QUARANTINED)) return { ...page, device, files };
    }
  }

  /** Returns how many migrations were started: as many as the queue accepts now. */
  async #moveAll(diskID: string, to: readonly string[], executor: string, maxRetries: number | undefined): Promise<number> {
    const source = coldSegment(diskID);
    const moving = this.#parts.moving(source);
    let submitted = 0;
    for await (const page of this.#parts.masters.filesOn(diskID))
      for (const file of page) {
        if (file.isHot || moving.has(`${file.tenant}\0${file.key}`)) continue;
        try {
          await this.#parts.move(file, source, [to[submitted % to.length] as string], executor, maxRetries);
        } catch (error) {
          // The next drain continues with the remaining objects.
          if (submitted > 0 && asFailure(error).name === "TOO_MANY_REQUESTS") return submitted;
          throw error;
        }
        submitted++;
      }
    return submitted;
  }

  /** Returns the device's current state and its owner's latest start. @throws if the owner does not serve the device. */
  async #serve(tenant: string, id: string): Promise<Served & { isGone?: false }> {
    const known = await this.devices(tenant).get(id);
    if (known.state === "unregistered") fail("INVALID_REQUEST", `device ${id} is unregistered: register it first`);
    const owner = await this.#parts.owners.live(known.definition.stable_id);
    const report = await this.#parts.owners.ask(owner, { command: "probe", device: specOf(known, tenant) });
    if (!report.isMounted || !report.isAnnounced)
      fail("STORE_CONFLICT", `device ${id} is not ready: ${report.trouble || "its owner is still reporting its objects to the master"}; try again`);
    const device = await this.devices(tenant).move(id, { type: "probed", epoch: owner.epoch, usage: usageOf(report) });
    return { device, owner };
  }

  /** Handles a device whose owner released it just before this server was killed: the owner confirms that, and the device is empty. */
  async #alreadyReleased(device: Device, tenant: string, error: Failure): Promise<Served & { isGone: boolean }> {
    if (!(error instanceof Failure) || error.name !== "STORE_CONFLICT" || device.state !== "draining") throw error;
    const owner = await this.#parts.owners.live(device.definition.stable_id);
    if ((await this.#parts.masters.coldDisks()).some(({ id }) => id === device.diskID)) throw error;
    await this.#parts.owners.ask(owner, { command: "unregister", device: specOf(device, tenant) });
    return { device, owner, isGone: true };
  }

  async #inside(device: Device): Promise<Inside> {
    const disk = (await this.#parts.masters.coldDisks()).find(({ id }) => id === device.diskID);
    if (disk === undefined || !disk.isReadable)
      return fail("STORE_CONFLICT", `the master does not hear from the owner of device ${device.definition.device_id}: try again`);
    const files: ColdFile[] = [];
    for await (const page of this.#parts.masters.filesOn(disk.id)) files.push(...page);
    const reclaimable = files.filter(({ isHot }) => isHot).length;
    return { files, holding: { blocked: files.length, reclaimable, reservedBytes: device.reservedBytes }, pendingDelete: Number(disk.dropped) };
  }

  /** Returns the files that were released. */
  async #release(device: Device, files: readonly ColdFile[]): Promise<ColdFile[]> {
    const hot = files.filter(({ isHot }) => isHot);
    const released: ColdFile[] = [];
    for (let at = 0; at < hot.length; at += RELEASED_AT_ONCE) {
      const some = hot.slice(at, at + RELEASED_AT_ONCE);
      const outcomes = await this.#parts.masters.release(diskOf(device), some);
      released.push(...some.filter((_, index) => outcomes[index]));
    }
    return released;
  }

  async #collect(tenant: string, device: Device, owner: Owner, pending: number): Promise<number> {
    await this.#parts.owners.ask(owner, { command: "collect", device: specOf(device, tenant) });
    const left = (await this.#parts.masters.coldDisks()).find(({ id }) => id === device.diskID)?.dropped ?? 0n;
    return Math.max(0, pending - Number(left));
  }

  async #schedule(tenant: string, device: Device, owner: Owner, isSchedulable: boolean): Promise<void> {
    await this.#parts.owners.ask(owner, { command: "schedule", device: specOf(device, tenant), isSchedulable });
  }

  /** Counts the objects that are waiting to be written to the device, or are being written. */
  async #inflight({ diskID }: Device): Promise<number> {
    return Number((await this.#parts.masters.coldDisks()).find(({ id }) => id === diskID)?.waiting ?? 0n);
  }

  async #targets(executor: string, given: readonly string[]): Promise<readonly string[]> {
    const { segments } = await this.#parts.owners.live(executor);
    const to = given.length > 0 ? given : segments;
    return to.length > 0 ? to : fail("INVALID_REQUEST", `${executor} has no segment of its own: give migration_target_segments`);
  }

  /** Serializes the changes of a device, whether it is named by its identity or by its alias. */
  async #serialized<T>(tenant: string, name: string, act: () => Promise<T>): Promise<T> {
    const id = await this.devices(tenant).identityOf(name);
    return this.#lock.run(tenant === "" ? id : `${tenant}/${id}`, act);
  }
}

const diskOf = ({ diskID }: Device): string => diskID ?? fail("STORE_CONFLICT", "the device was never registered");

const usageOf = ({ diskID, rootDir, capacityBytes, usedBytes, reservedBytes }: DeviceReport): Usage => ({
  diskID,
  rootDir,
  capacityBytes,
  usedBytes,
  reservedBytes,
});
