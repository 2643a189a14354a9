// One device of the cold tier while its owner serves it: a disk that is filled and emptied on its administrator's commands.
import { setTimeout as sleep } from "node:timers/promises";
import { fail } from "@svc/contract/failures.ts";
import type { OwnDisk } from "../disk/own-disk.ts";
import { refusal } from "../session/refusal.ts";
import type { ColdAnswers, DeviceReport, DeviceSpec } from "./commands.ts";
import type { DevicePlace, Label, OpenPlace, PlaceOptions, PlaceParts } from "./device-place.ts";

const WAIT_MS = 20_000;
const STEP_MS = 20;

export type DeviceParts = PlaceParts & { readonly label: number; readonly owner: Omit<Label, "deviceID" | "tenant"> };

export class ColdDevice {
  readonly spec: DeviceSpec;
  readonly label: number;
  readonly scans: boolean;
  isSchedulable: boolean;
  readonly #place: DevicePlace;
  readonly #parts: DeviceParts;
  readonly #open: OpenPlace;

  private constructor(spec: DeviceSpec, place: DevicePlace, parts: DeviceParts, open: OpenPlace, { scans, isSchedulable }: PlaceOptions) {
    this.spec = spec;
    this.label = parts.label;
    this.scans = scans;
    this.isSchedulable = isSchedulable;
    this.#place = place;
    this.#parts = parts;
    this.#open = open;
  }

  /** @throws the failures of `DevicePlace.open`. */
  static async open(spec: DeviceSpec, place: DevicePlace, parts: DeviceParts, options: PlaceOptions): Promise<ColdDevice> {
    const label = { ...parts.owner, deviceID: spec.id, tenant: spec.tenant };
    return new ColdDevice(spec, place, parts, await place.open(label, parts, options), options);
  }

  get #disk(): OwnDisk {
    return this.#open.disk;
  }

  report(): DeviceReport {
    const { files, usedBytes, capacityBytes, reservedBytes, isAnnounced, isMounted, trouble } = this.#disk.state;
    const known = isAnnounced || !this.scans;
    const limit = this.spec.capacityBytes === null && this.spec.target.type === "s3" ? null : capacityBytes;
    const isAt = { diskID: this.#disk.id, rootDir: this.#place.root };
    return { ...isAt, capacityBytes: limit, usedBytes, reservedBytes, files, isAnnounced: known, isMounted, trouble };
  }

  /** Reports like `report`, after checking that the device can be reached. @throws the reason why it cannot. */
  async probe(): Promise<DeviceReport> {
    await this.#open.probe();
    return this.report();
  }

  async schedule(isSchedulable: boolean): Promise<void> {
    this.isSchedulable = isSchedulable;
    await this.#open.schedule(isSchedulable);
  }

  /** Resolves once the master sends readers here and knows every object. */
  async whenServed(): Promise<void> {
    await this.#until(() => this.report().isMounted && this.report().isAnnounced, "the master to know the device and all its objects");
  }

  /** Resolves once every file that the master dropped is deleted. */
  async collect(): Promise<void> {
    await this.whenServed();
    const endMs = performance.now() + WAIT_MS;
    // Two empty rounds are required: the answer to the first may have been sent before the call.
    for (let quiet = 0; quiet < 2; ) {
      quiet = (await this.#nextRound(endMs)).drops === 0 ? quiet + 1 : 0;
    }
  }

  /** Asks for up to `most` objects of the owner's memory, and waits until they are stored. */
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
        const isIdle = (await this.#nextRound(endMs)).offloads === 0 && this.#disk.progress.writing === 0;
        quiet = isIdle ? quiet + 1 : 0;
      }
    }
    return { stored: this.#disk.progress.stored - before, hasEnded };
  }

  /** Ends the device for good. @throws STORE_CONFLICT where it still has objects. */
  async giveUp(): Promise<void> {
    await this.collect();
    await this.#disk.giveUp();
    await this.#open.close();
  }

  async close(): Promise<void> {
    await this.#open.close();
    await this.#disk.close();
  }

  async #nextRound(endMs: number): Promise<{ offloads: number; drops: number }> {
    const leftMs = endMs - performance.now();
    const late = sleep(Math.max(1, leftMs), undefined, { ref: false }).then(() =>
      fail("TIMED_OUT", `device ${this.spec.id} was still busy after ${WAIT_MS / 1000} s: try again`),
    );
    return Promise.race([this.#disk.nextRound(), late]);
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
