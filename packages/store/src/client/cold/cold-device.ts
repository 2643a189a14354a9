// One device of the cold tier while its owner serves it: a disk that is filled and emptied as its administrator says.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import type { ColdParts, DiskParts } from "../disk/disk-parts.ts";
import { OwnDisk } from "../disk/own-disk.ts";
import { refusal } from "../session/refusal.ts";
import type { ColdAnswers, DeviceReport, DeviceSpec } from "./commands.ts";
import { DeviceFolder, type Label } from "./device-folder.ts";

const WAIT_MS = 20_000;
const STEP_MS = 20;

export type DeviceParts = Omit<DiskParts, "folder" | "capacityBytes" | "cold" | "label"> & {
  readonly label: number;
  readonly owner: Omit<Label, "deviceID" | "tenant">;
};
export type DeviceOptions = { readonly scans: boolean; readonly isSchedulable: boolean };

export class ColdDevice {
  readonly spec: DeviceSpec;
  readonly label: number;
  readonly folder: DeviceFolder;
  readonly #parts: DeviceParts;
  readonly #disk: OwnDisk;
  readonly #cold: ColdParts;

  private constructor(spec: DeviceSpec, folder: DeviceFolder, parts: DeviceParts, disk: OwnDisk, cold: ColdParts) {
    this.spec = spec;
    this.label = parts.label;
    this.folder = folder;
    this.#parts = parts;
    this.#disk = disk;
    this.#cold = cold;
  }

  /** @throws SETTING_INVALID where the folder cannot be used or another process uses it, STORE_CONFLICT where it is another's. */
  static async open(spec: DeviceSpec, root: string, parts: DeviceParts, { scans, isSchedulable }: DeviceOptions): Promise<ColdDevice> {
    const folder = DeviceFolder.of(root, spec);
    const label = { ...parts.owner, deviceID: spec.id, tenant: spec.tenant };
    await folder.checkRoot();
    await folder.make().catch((error: Error) => fail("INVALID_REQUEST", `the device's folder cannot be created: ${error.message}`, { cause: error }));
    await folder.check(label);
    await folder.setHalfWrittenAside();
    const cold: ColdParts = { announces: scans, isSchedulable, quarantine: (file) => folder.setAside(file) };
    const disk = await OwnDisk.open({ ...parts, folder: folder.path, capacityBytes: spec.capacityBytes ?? 0, cold });
    try {
      await folder.claim(label);
    } catch (error) {
      await disk.close();
      throw error;
    }
    return new ColdDevice(spec, folder, parts, disk, cold);
  }

  get isSchedulable(): boolean {
    return this.#cold.isSchedulable;
  }
  get scans(): boolean {
    return this.#cold.announces;
  }

  report(): DeviceReport {
    const { files, usedBytes, capacityBytes, reservedBytes, isAnnounced, isMounted, trouble } = this.#disk.state;
    const known = isAnnounced || !this.#cold.announces;
    return { diskID: this.#disk.id, rootDir: this.folder.root, capacityBytes, usedBytes, reservedBytes, files, isAnnounced: known, isMounted, trouble };
  }

  schedule(isSchedulable: boolean): Promise<void> {
    return this.#disk.setSchedulable(this.#cold, isSchedulable);
  }

  /** Once the master sends readers here, and knows of every object. */
  async whenServed(): Promise<void> {
    await this.#until(() => this.report().isMounted && this.report().isAnnounced, "the master to know the device and all that lies there");
  }

  /** Once no file is left that the master gave up. */
  async collect(): Promise<void> {
    await this.whenServed();
    const endMs = performance.now() + WAIT_MS;
    // The answer that is on its way may be from before.
    for (let quiet = 0; quiet < 2; ) {
      quiet = (await this.#turned(endMs)).drops === 0 ? quiet + 1 : 0;
    }
  }

  /** Asks for as many objects of its owner's memory, and waits until they are stored. */
  async offload(most: number): Promise<ColdAnswers["offload"]> {
    await this.whenServed();
    const { session } = this.#parts;
    const before = this.#disk.progress.stored;
    const endMs = performance.now() + WAIT_MS;
    let [queued, hasEnded] = [0, false];
    while (queued < most && !hasEnded) {
      const answer = await session.calls.call(
        "QueueOffloads",
        session.clientID,
        this.#disk.id,
        Buffer.from(this.spec.tenant).toString("latin1"),
        most - queued,
      );
      if (!answer.ok) throw refusal(answer.code, `asking for objects for device ${this.spec.id}`);
      queued += answer.value.queued;
      hasEnded = answer.value.hasEnded;
      if (performance.now() > endMs) break;
    }
    if (queued > 0) {
      for (let quiet = 0; quiet < 2; ) {
        const isIdle = (await this.#turned(endMs)).offloads === 0 && this.#disk.progress.writing === 0;
        quiet = isIdle ? quiet + 1 : 0;
      }
    }
    return { stored: this.#disk.progress.stored - before, hasEnded };
  }

  /** For good. @throws STORE_CONFLICT where an object lies here. */
  async giveUp(): Promise<void> {
    await this.collect();
    await this.#disk.giveUp();
  }

  close(): Promise<void> {
    return this.#disk.close();
  }

  async #turned(endMs: number): Promise<{ offloads: number; drops: number }> {
    const leftMs = endMs - performance.now();
    const late = sleep(Math.max(1, leftMs), undefined, { ref: false }).then(() =>
      fail("TIMED_OUT", `device ${this.spec.id} was still busy after ${WAIT_MS / 1000} s: try again`),
    );
    return Promise.race([this.#disk.turned(), late]);
  }

  async #until(isTrue: () => boolean, what: string): Promise<void> {
    const endMs = performance.now() + WAIT_MS;
    while (!isTrue()) {
      if (performance.now() > endMs)
        fail("TIMED_OUT", `device ${this.spec.id}: waited ${WAIT_MS / 1000} s for ${what}: ${this.report().trouble || "try again"}`);
      await sleep(STEP_MS, undefined, { ref: false });
    }
  }
}
