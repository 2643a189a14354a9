// Ownership of a device on an S3-compatible server: each start of an owner writes a claim, and the claim with the highest epoch wins.
import { createHash, randomUUID } from "node:crypto";
import { asFailure, type Failure, fail } from "@svc/contract/failures.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import { type Names, ownerName, ownerOf } from "./bucket-names.ts";
import type { Label } from "./device-place.ts";

// The bucket has no locks, so a live owner renews its claim, and a claim that was not renewed for ALIVE_MS is void. A
// later start of the same owner need not wait. All times are the server's. An owner that finds a higher epoch than its
// own has lost the device for good; its pending writes do no harm, since every name that it writes includes its epoch.

const ALIVE_MS = 30_000;
/** An older look at the claims is not trusted: they are listed again before anything is written. */
const FRESH_MS = 15_000;
const MAX_LABEL_BYTES = 64 * 1024;

type DeviceRecord = { readonly deviceID: string; readonly tenant: string; readonly diskID: string };
type Known = { readonly name: string; readonly epoch: number; readonly stable: string; readonly modifiedAtMs: number };

/** @throws STORE_CONFLICT where another device uses the prefix, or a later start of this owner has claimed it. */
export async function checkBucket(objects: Objects, names: Names, label: Label): Promise<DeviceRecord | undefined> {
  const record = await readJSON<DeviceRecord>(objects, names.device);
  if (record !== undefined && (record.deviceID !== label.deviceID || record.tenant !== label.tenant)) {
    const whose = record.tenant === "" ? "all tenants" : `tenant ${record.tenant}`;
    fail("STORE_CONFLICT", `${objects.url}/${names.device} says that device ${record.deviceID} of ${whose} is there`);
  }
  for (const each of await owners(objects, names)) if (each.epoch > label.epoch) await refuseStale(objects, names, label, each);
  return record;
}

export class BucketClaim {
  readonly epoch: number;
  readonly diskID: string;
  readonly #objects: Objects;
  readonly #names: Names;
  readonly #label: Label;
  #seenMs = performance.now();
  #lost: Failure | undefined;
  #beating: Promise<void> = Promise.resolve();
  #isReleased = false;

  private constructor(objects: Objects, names: Names, label: Label, diskID: string) {
    this.#objects = objects;
    this.#names = names;
    this.#label = label;
    this.epoch = label.epoch;
    this.diskID = diskID;
  }

  /** @throws STORE_CONFLICT where another owner or a later start of this one serves the device; OBJECTS_UNAVAILABLE. */
  static async take(objects: Objects, names: Names, label: Label): Promise<BucketClaim> {
    const record = await checkBucket(objects, names, label);
    const own = `${names.owners}${ownerName(label.epoch, stableOf(label))}`;
    const before = (await owners(objects, names)).filter(({ name }) => name !== own);
    const strangers = before.filter(({ stable }) => stable !== stableOf(label));
    if (strangers.length > 0) await refuseLive(objects, names, strangers);
    await objects.put(own, Buffer.from(`${JSON.stringify(label)}\n`));
    for (const each of await owners(objects, names)) {
      if (each.epoch <= label.epoch) continue;
      await objects.delete(own);
      await refuseStale(objects, names, label, each);
    }
    const diskID = record?.diskID ?? randomUUID();
    const made: DeviceRecord = { deviceID: label.deviceID, tenant: label.tenant, diskID };
    if (record === undefined) await objects.put(names.device, Buffer.from(`${JSON.stringify(made)}\n`));
    for (const { name } of before) await objects.delete(name);
    return new BucketClaim(objects, names, label, diskID);
  }

  /** Must succeed before anything is written. @throws STORE_CONFLICT where a later start has claimed the device. */
  async confirm(): Promise<void> {
    if (this.#lost !== undefined) throw this.#lost;
    if (performance.now() - this.#seenMs > FRESH_MS) await this.look();
  }

  /** Lists the claims now. @throws STORE_CONFLICT as `confirm`; OBJECTS_UNAVAILABLE. */
  async look(): Promise<void> {
    const asked = performance.now();
    for (const each of await owners(this.#objects, this.#names)) {
      if (each.epoch <= this.epoch) continue;
      this.#lost = await refuseStale(this.#objects, this.#names, this.#label, each).catch(asFailure);
    }
    if (this.#lost !== undefined) throw this.#lost;
    this.#seenMs = asked;
  }

  /** Renews this claim, well within ALIVE_MS of the last time. @throws as `look`. */
  beat(): Promise<void> {
    if (!this.#isReleased) this.#beating = this.#renew();
    return this.#beating;
  }

  /** Deletes the claim, so that another owner can take the device at once. */
  async release(): Promise<void> {
    this.#isReleased = true;
    await this.#beating.catch(() => undefined);
    if (this.#lost === undefined) await this.#objects.delete(`${this.#names.owners}${ownerName(this.epoch, stableOf(this.#label))}`);
  }

  async #renew(): Promise<void> {
    await this.look();
    await this.#objects.put(`${this.#names.owners}${ownerName(this.epoch, stableOf(this.#label))}`, Buffer.from(`${JSON.stringify(this.#label)}\n`));
  }
}

const stableOf = ({ stableID }: Label) => createHash("sha256").update(stableID).digest("hex").slice(0, 16);

async function owners(objects: Objects, names: Names): Promise<Known[]> {
  const found: Known[] = [];
  for await (const { key, modifiedAtMs } of objects.list(names.owners)) {
    const owner = ownerOf(key.slice(names.owners.length));
    if (owner !== undefined) found.push({ ...owner, name: key, modifiedAtMs });
  }
  return found;
}

async function refuseStale(objects: Objects, names: Names, { epoch }: Label, by: Known): Promise<never> {
  const label = await readJSON<Label>(objects, by.name);
  return fail("STORE_CONFLICT", `stale epoch ${epoch}: ${objects.url}/${names.objects} is served by ${label?.stableID ?? "another"} since epoch ${by.epoch}`);
}

async function refuseLive(objects: Objects, names: Names, others: readonly Known[]): Promise<void> {
  await objects.put(names.clock, Buffer.alloc(0));
  const nowMs = (await objects.head(names.clock))?.modifiedAtMs ?? Number.POSITIVE_INFINITY;
  const live = others.find(({ modifiedAtMs }) => nowMs - modifiedAtMs < ALIVE_MS);
  if (live === undefined) return;
  const label = await readJSON<Label>(objects, live.name);
  fail(
    "STORE_CONFLICT",
    `${objects.url}/${names.objects} is served by ${label?.stableID ?? "another owner"}: unregister it there, or try again ${ALIVE_MS / 1000} s after that one ended`,
  );
}

async function readJSON<T>(objects: Objects, key: string): Promise<T | undefined> {
  const bytes = await objects.get(key, MAX_LABEL_BYTES);
  if (bytes === undefined) return undefined;
  try {
    return JSON.parse(bytes.toString("utf8")) as T;
  } catch {
    return fail("STORE_CONFLICT", `${objects.url}/${key} is damaged: the owner of the device there cannot be determined`);
  }
}
