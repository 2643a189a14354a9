// A device on an S3-compatible server: its location there, its ownership, and its quarantine.
import { createHash } from "node:crypto";
import { join } from "node:path";
import { asFailure, Failure, fail } from "@svc/contract/failures.ts";
import type { Objects } from "@svc/kit/objects/objects.ts";
import { openS3Objects, type S3Bounds } from "@svc/kit/objects/s3.ts";
import { credentialsFrom } from "@svc/kit/objects/s3-credentials.ts";
import type { ColdParts } from "../disk/disk-parts.ts";
import { OwnDisk } from "../disk/own-disk.ts";
import { BucketClaim, checkBucket } from "./bucket-claim.ts";
import { BucketFiles } from "./bucket-files.ts";
import { fileOf, type Names, namesOf } from "./bucket-names.ts";
import { BucketSpool } from "./bucket-spool.ts";
import type { ColdAnswers, DeviceSpec, DeviceTarget, QuarantinedFile } from "./commands.ts";
import { encoded } from "./device-folder.ts";
import type { DevicePlace, Label, Looked, OpenPlace, PlaceOptions, PlaceParts } from "./device-place.ts";
import { openFileSource } from "./file-source.ts";

/** The access of a client to the buckets of its devices; the request that creates a device does not contain it. */
export type S3Access = {
  /** http://HOST:PORT or https://HOST:PORT; "" is AWS S3 in the region. */
  readonly endpoint: string;
  readonly region: string;
  readonly pathStyle: boolean;
  /** The path of the credentials file; "" reads them from the environment. */
  readonly credentialsFile: string;
  readonly env: NodeJS.ProcessEnv;
  /** s3://BUCKET/PREFIX below which devices may lie; if empty, wherever the credentials allow. */
  readonly allowed: readonly string[];
  /** Contains each device's local copies of what is written and read. */
  readonly cacheFolder: string;
  readonly cacheBytes: number;
};

const CREDENTIALS_SETTING = "store_service.cold_tier_s3_credentials_file";
const CONCURRENCY = 16;
const BOUNDS: S3Bounds = { silenceMs: 5000, callMs: 10_000, attempts: 3 };
const PAGE = 64;
/** Bounds the quarantined files that are counted. */
const MAX_COUNTED = 100_000;
/** The capacity of a device whose definition has none, since a bucket has no size. */
const UNLIMITED = 2 ** 52;
const PROBE_MS = 10_000;

export class DeviceBucket implements DevicePlace {
  readonly root: string;
  readonly #spec: DeviceSpec;
  readonly #access: S3Access;
  readonly #names: Names;

  /** @throws INVALID_REQUEST for a bucket outside the allowed prefixes. */
  constructor(target: Extract<DeviceTarget, { type: "s3" }>, spec: DeviceSpec, access: S3Access) {
    const { allowed } = access;
    if (allowed.length > 0 && !allowed.some((each) => target.url === each || target.url.startsWith(`${each}/`)))
      fail("INVALID_REQUEST", `${target.url}: this service serves devices below ${allowed.join(", ")} only (its setting store_service.cold_tier_s3_prefixes)`);
    this.root = target.url;
    this.#spec = spec;
    this.#access = access;
    this.#names = namesOf(this.#url.pathname.slice(1), encoded(spec.id));
  }

  async look(label: Label): Promise<Looked> {
    return this.#with(async (objects) => {
      await checkBucket(objects, this.#names, label);
      return this.#contentsOf(objects);
    });
  }

  contents(): Promise<Looked> {
    return this.#with((objects) => this.#contentsOf(objects));
  }

  async capacityBytes(): Promise<number | null> {
    return null;
  }

  async open(label: Label, parts: PlaceParts, { scans, ...options }: PlaceOptions): Promise<OpenPlace> {
    await using undo = new AsyncDisposableStack();
    const objects = undo.adopt(await this.#objects(), (each) => each.close());
    const folder = join(
      this.#access.cacheFolder,
      createHash("sha256").update(`${this.root}\0${this.#spec.tenant}\0${this.#spec.id}`).digest("hex").slice(0, 32),
    );
    const spool = undo.adopt(await BucketSpool.open(folder, this.#access.cacheBytes), (each) => each.close());
    const claim = undo.adopt(await BucketClaim.take(objects, this.#names, label), (each) => each.release().catch(() => undefined));
    let files: BucketFiles | undefined;
    const source = await openFileSource(folder, async (file) => (files as BucketFiles).bring(file));
    const store = new BucketFiles({ objects, names: this.#names, claim, spool, memory: parts.memory });
    files = store;
    const cold: ColdParts = { ...options, announces: scans, quarantine: (file) => store.quarantine(file) };
    const capacityBytes = this.#spec.capacityBytes ?? UNLIMITED;
    // From here on the disk owns the file store, whose close ends the connections, the local copies and the claim.
    undo.move();
    const disk = await OwnDisk.open({ ...parts, folder, capacityBytes, cold, files: { store, id: claim.diskID } }).catch((error) => {
      source.close();
      throw error;
    });
    return {
      disk,
      probe: () => within(PROBE_MS, store.look(), `${this.root} did not answer within ${PROBE_MS / 1000} s`),
      schedule: (isOn) => disk.setSchedulable(cold, isOn),
      async close() {
        source.close();
      },
    };
  }

  async quarantined(from: number): Promise<ColdAnswers["quarantine"]> {
    return this.#with(async (objects) => {
      const all: QuarantinedFile[] = [];
      let [count, totalBytes] = [0, 0];
      for (const area of ["final", "pending"] as const)
        for await (const { key, sizeBytes, modifiedAtMs } of objects.list(this.#names.quarantine[area])) {
          if (count >= MAX_COUNTED) break;
          totalBytes += sizeBytes;
          if (count++ < from || all.length >= PAGE) continue;
          const file_name = key.slice(key.lastIndexOf("/") + 1);
          all.push({ area, file_name, encoded_path: key, size_bytes: sizeBytes, modified_at_ms: Math.floor(modifiedAtMs) });
        }
      return { rootDir: this.root, count, totalBytes, files: all };
    });
  }

  get #url(): URL {
    return new URL(this.root);
  }

  async #contentsOf(objects: Objects): Promise<Looked> {
    let [files, usedBytes] = [0, 0];
    for await (const { key, sizeBytes } of objects.list(this.#names.objects)) {
      const known = fileOf(key.slice(this.#names.objects.length));
      if (known === undefined) continue;
      if (known.part === 0) files++;
      usedBytes += sizeBytes;
    }
    return { files, usedBytes };
  }

  async #with<T>(use: (objects: Objects) => Promise<T>): Promise<T> {
    const objects = await this.#objects();
    try {
      return await use(objects);
    } finally {
      await objects.close();
    }
  }

  async #objects(): Promise<Objects> {
    const { endpoint, region, pathStyle, credentialsFile, env } = this.#access;
    const url = this.#url;
    try {
      return await openS3Objects({
        url: this.root,
        bucket: url.host,
        prefix: url.pathname.slice(1),
        endpoint: endpoint === "" ? `https://s3.${region}.amazonaws.com` : endpoint,
        region,
        pathStyle,
        concurrency: CONCURRENCY,
        credentials: credentialsFrom(credentialsFile, env, CREDENTIALS_SETTING),
        bounds: BOUNDS,
      });
    } catch (error) {
      return fail("INVALID_REQUEST", `${this.root} cannot be reached by the device's owner: ${asFailure(error).message}`, { cause: error });
    }
  }
}

async function within<T>(ms: number, work: Promise<T>, why: string): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Failure("OBJECTS_UNAVAILABLE", why)), ms);
  try {
    return await Promise.race([work, late.promise]);
  } finally {
    clearTimeout(timer);
    work.catch(() => undefined);
  }
}
