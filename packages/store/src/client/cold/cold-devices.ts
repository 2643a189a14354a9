// The client's own devices of the cold tier: kept in a file, served again after a restart, and commanded through the master.
import { readFile, rename, writeFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure, fail } from "@svc/contract/failures.ts";
import { openKeyedLock } from "@svc/kit/keyed-lock.ts";
import { FIRST_BUCKET_LABEL } from "../disk/places.ts";
import { ColdDevice, type DeviceParts } from "./cold-device.ts";
import { type ColdAnswer, type ColdAnswers, type ColdCommand, coldCommand, type DeviceReport, type DeviceSpec, deviceSpec } from "./commands.ts";
import { DeviceBucket, type S3Access } from "./device-bucket.ts";
import { DeviceFolder, rootOf } from "./device-folder.ts";
import type { DevicePlace, PlaceOptions } from "./device-place.ts";

/** The first label of a device; lower labels are other disks of the client. */
const FIRST_LABEL = 0x8000;
const MAX_DEVICES = 256;
const MAX_WAITING = 64;
const RETRY_MS = 5000;
const CLOSE_MS = 2000;

export type ColdTierOptions = {
  /** The file with the list of devices. */
  readonly file: string;
  /** Folders below which devices may lie; any folder if empty. */
  readonly allowed: readonly string[];
  readonly s3: S3Access;
  /**
   * The objects that are written to devices without a command: none, those about
   * to be evicted from this client's memory, or all once they are stored there.
   */
  readonly offloads: "asked" | "evicted" | "stored";
};

type Saved = { readonly spec: DeviceSpec; readonly scans: boolean; readonly isSchedulable: boolean };

export class ColdDevices {
  readonly #options: ColdTierOptions;
  readonly #parts: Omit<DeviceParts, "label">;
  readonly #open = new Map<string, ColdDevice>();
  /** Devices of an earlier start that cannot be served now, and the reason. */
  readonly #waiting = new Map<string, Saved & { why: string }>();
  #timer: NodeJS.Timeout | undefined;
  /** Serializes the commands for one device; a device that does not answer delays no other. */
  readonly #lock = openKeyedLock("device", MAX_WAITING);
  readonly #busy = new Set<Promise<unknown>>();
  readonly #retrying = new Set<string>();
  readonly #labels = new Set<number>();
  #saving: Promise<unknown> = Promise.resolve();

  private constructor(options: ColdTierOptions, parts: Omit<DeviceParts, "label">) {
    this.#options = options;
    this.#parts = parts;
  }

  /** Serves again the devices of an earlier start; those that fail are retried periodically. */
  static async open(options: ColdTierOptions, parts: Omit<DeviceParts, "label">): Promise<ColdDevices> {
    const devices = new ColdDevices(options, parts);
    for (const saved of await readList(options.file)) devices.#waiting.set(keyOf(saved.spec), { ...saved, why: "" });
    devices.#retryAll();
    devices.#timer = setInterval(() => devices.#retryAll(), RETRY_MS).unref();
    return devices;
  }

  /** Carries out a command and returns the answer as JSON. */
  async obey(text: string): Promise<string> {
    let answer: ColdAnswer;
    try {
      const parsed = coldCommand.safeParse(JSON.parse(text));
      if (!parsed.success) fail("INVALID_REQUEST", `a command of the cold tier: ${parsed.error.issues[0]?.message}`);
      answer = { ok: true, value: await this.#locked(parsed.data.device, () => this.#do(parsed.data as ColdCommand)) };
    } catch (error) {
      const { name, message } = asFailure(error);
      answer = { ok: false, failure: name, message };
    }
    return JSON.stringify(answer);
  }

  async close(): Promise<void> {
    clearInterval(this.#timer);
    await Promise.race([Promise.allSettled(this.#busy), sleep(CLOSE_MS, undefined, { ref: false })]);
    await Promise.all([...this.#open.values()].map((device) => device.close()));
  }

  async #do(command: ColdCommand): Promise<ColdAnswers[keyof ColdAnswers]> {
    const { device: spec } = command;
    switch (command.command) {
      case "register":
        return this.#register(spec, command.scans, command.isDryRun);
      case "unregister":
        return this.#unregister(spec);
      case "schedule": {
        const device = this.#find(spec);
        await device.schedule(command.isSchedulable);
        await this.#save();
        return device.report();
      }
      case "probe":
        return this.#find(spec).probe();
      case "collect": {
        const device = this.#find(spec);
        await device.collect();
        return device.report();
      }
      case "offload":
        return this.#find(spec).offload(command.most);
      case "quarantine":
        return (await this.#placeOf(spec)).quarantined(command.from);
    }
  }

  async #register(spec: DeviceSpec, scans: boolean, isDryRun: boolean): Promise<DeviceReport> {
    const known = this.#open.get(keyOf(spec));
    if (isDryRun) return known?.report() ?? this.#looked(spec);
    if (known === undefined) {
      if (this.#open.size + this.#waiting.size >= MAX_DEVICES) fail("TOO_MANY_REQUESTS", `this service serves ${MAX_DEVICES} devices, the maximum`);
      this.#waiting.delete(keyOf(spec));
      await this.#serve(spec, { scans, isSchedulable: true });
    } else {
      if (scans && !known.scans) fail("STORE_CONFLICT", `device ${spec.id} is registered without a scan: unregister it first`);
      await known.schedule(true);
    }
    await this.#save();
    const device = this.#find(spec);
    await device.whenServed();
    return device.report();
  }

  /** Reports what a registration would find. */
  async #looked(spec: DeviceSpec): Promise<DeviceReport> {
    const place = await this.#placeOf(spec);
    const { files, usedBytes } = await place.look({ ...this.#parts.owner, deviceID: spec.id, tenant: spec.tenant });
    const none = { diskID: "", reservedBytes: 0, isAnnounced: false, isMounted: false, trouble: "" };
    return { ...none, rootDir: place.root, capacityBytes: spec.capacityBytes ?? (await place.capacityBytes()), usedBytes, files };
  }

  async #unregister(spec: DeviceSpec): Promise<ColdAnswers["unregister"]> {
    const device = this.#open.get(keyOf(spec));
    if (device !== undefined) {
      await device.giveUp();
      this.#open.delete(keyOf(spec));
      this.#labels.delete(device.label);
      await this.#save();
      return { isGone: true };
    }
    // A device that is not served cannot be drained, so its files may be the only replicas of their objects.
    const { files } = await (await this.#placeOf(spec)).contents();
    if (files > 0) fail("STORE_CONFLICT", `${files} files of objects are on device ${spec.id}, which is not being served: register it, then drain it`);
    if (this.#waiting.delete(keyOf(spec))) await this.#save();
    return { isGone: true };
  }

  async #serve(spec: DeviceSpec, { scans, isSchedulable }: PlaceOptions): Promise<void> {
    const place = await this.#placeOf(spec);
    let label = spec.target.type === "s3" ? FIRST_BUCKET_LABEL : FIRST_LABEL;
    while (this.#labels.has(label)) label++;
    this.#labels.add(label);
    try {
      this.#open.set(keyOf(spec), await ColdDevice.open(spec, place, { ...this.#parts, label }, { scans, isSchedulable, ...this.#fillsOf(spec) }));
    } catch (error) {
      this.#labels.delete(label);
      throw error;
    }
  }

  #fillsOf({ tenant }: DeviceSpec): Pick<PlaceOptions, "fills"> {
    const { offloads: what } = this.#options;
    return what === "asked" ? {} : { fills: { what, tenant: Buffer.from(tenant).toString("latin1") } };
  }

  async #placeOf(spec: DeviceSpec): Promise<DevicePlace> {
    const { allowed, s3 } = this.#options;
    return spec.target.type === "s3" ? new DeviceBucket(spec.target, spec, s3) : new DeviceFolder(await rootOf(spec.target, allowed), spec);
  }

  #find(spec: DeviceSpec): ColdDevice {
    const why = this.#waiting.get(keyOf(spec))?.why;
    return (
      this.#open.get(keyOf(spec)) ??
      fail("STORE_CONFLICT", `device ${spec.id} is not being served by its owner${why === undefined ? "" : `: ${why}`}; register it again`)
    );
  }

  #retryAll(): void {
    for (const [key, { spec }] of this.#waiting) {
      if (this.#retrying.has(key)) continue;
      this.#retrying.add(key);
      this.#locked(spec, () => this.#retry(spec))
        .catch(() => undefined)
        .finally(() => this.#retrying.delete(key));
    }
  }

  async #retry(spec: DeviceSpec): Promise<void> {
    const saved = this.#waiting.get(keyOf(spec));
    if (saved === undefined) return;
    try {
      await this.#serve(saved.spec, saved);
      this.#waiting.delete(keyOf(spec));
    } catch (error) {
      const failure = asFailure(error);
      if (failure.message !== saved.why) this.#parts.onEvent?.({ type: "disk-away", folder: spec.id, failure });
      saved.why = failure.message;
    }
  }

  /** Saves the list that the next start serves again. */
  async #save(): Promise<void> {
    const { file } = this.#options;
    const open = [...this.#open.values()].map(({ spec, scans, isSchedulable }): Saved => ({ spec, scans, isSchedulable }));
    const waiting = [...this.#waiting.values()].map(({ spec, scans, isSchedulable }): Saved => ({ spec, scans, isSchedulable }));
    const saving = this.#saving.then(async () => {
      await writeFile(`${file}.new`, `${JSON.stringify([...open, ...waiting])}\n`, { mode: 0o600, flush: true });
      await rename(`${file}.new`, file);
    });
    this.#saving = saving.catch(() => undefined);
    await saving;
  }

  async #locked<T>(spec: DeviceSpec, act: () => Promise<T>): Promise<T> {
    const work = this.#lock.run(keyOf(spec), act);
    this.#busy.add(work);
    try {
      return await work;
    } finally {
      this.#busy.delete(work);
    }
  }
}

const keyOf = ({ tenant, id }: DeviceSpec) => `${tenant}\0${id}`;

async function readList(file: string): Promise<Saved[]> {
  const text = await readFile(file, "utf8").catch(() => "[]");
  try {
    return (JSON.parse(text) as Saved[]).map(({ spec, scans, isSchedulable }) => ({ spec: deviceSpec.parse(spec), scans, isSchedulable }));
  } catch (error) {
    return fail("SETTING_INVALID", `the list of this service's cold-tier devices, ${file}, is damaged: move it away, and register the devices again`, {
      cause: error,
    });
  }
}
