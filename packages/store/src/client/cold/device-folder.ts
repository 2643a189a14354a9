// A device in a folder: its location, its ownership, and the quarantine for files that no object refers to.
import { mkdir, readdir, readFile, rename, stat, statfs, writeFile } from "node:fs/promises";
import { join, resolve, sep } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { type ColdParts, DEFAULT_SHARE } from "../disk/disk-parts.ts";
import { OwnDisk } from "../disk/own-disk.ts";
import type { ColdAnswers, DeviceSpec, DeviceTarget, QuarantinedFile } from "./commands.ts";
import type { DevicePlace, Label, Looked, OpenPlace, PlaceOptions, PlaceParts } from "./device-place.ts";

// ROOT/ENCODED_ID/NNNNNNNN                              an object
// ROOT/ENCODED_ID/device.json                           the label of its owner
// ROOT/ENCODED_ID/__orphan_quarantine__/                files that no object refers to, and damaged ones
// ROOT/__pending__/ENCODED_ID/__orphan_quarantine__/    files that were incomplete when their owner ended
const QUARANTINE = "__orphan_quarantine__";
const PENDING = "__pending__";
const LABEL = "device.json";
const PAGE = 64;

/** Keeps letters, digits, dots and dashes, and writes any other byte as ~HH. */
export const encoded = (name: string): string =>
  [...Buffer.from(name)]
    .map((byte) => (/[A-Za-z0-9.-]/.test(String.fromCharCode(byte)) ? String.fromCharCode(byte) : `~${byte.toString(16).toUpperCase().padStart(2, "0")}`))
    .join("");

/** @throws INVALID_REQUEST for a folder outside `allowed` (any folder if empty), and for a file system that is not mounted here. */
export async function rootOf(target: Exclude<DeviceTarget, { type: "s3" }>, allowed: readonly string[]): Promise<string> {
  const root = target.type === "directory" ? resolve(target.path) : await mountOf(target.uuid);
  const isAllowed = allowed.length === 0 || allowed.some((each) => root === resolve(each) || root.startsWith(resolve(each) + sep));
  if (!isAllowed)
    fail("INVALID_REQUEST", `${root}: this service serves devices below ${allowed.join(", ")} only (its setting store_service.cold_tier_folders)`);
  return root;
}

async function mountOf(uuid: string): Promise<string> {
  const known = await stat(join("/dev/disk/by-uuid", uuid)).catch(() => undefined);
  if (known === undefined) fail("INVALID_REQUEST", `no file system has the UUID ${uuid} on the owner's host: /dev/disk/by-uuid lists them`);
  const device = `${Math.floor(known.rdev / 256) & 0xfff}:${known.rdev & 0xff}`;
  for (const line of (await readFile("/proc/self/mountinfo", "utf8")).split("\n")) {
    const [, , number, top, mount] = line.split(" ");
    if (number === device && top === "/" && mount !== undefined)
      return mount.replace(/\\([0-7]{3})/g, (_all, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
  }
  return fail("INVALID_REQUEST", `the file system with the UUID ${uuid} is not mounted on the owner's host: mount it first`);
}

export class DeviceFolder implements DevicePlace {
  readonly root: string;
  readonly #spec: DeviceSpec;
  readonly #name: string;

  constructor(root: string, spec: DeviceSpec) {
    this.root = root;
    this.#spec = spec;
    this.#name = encoded(spec.id);
  }

  async look(label: Label): Promise<Looked> {
    await this.checkRoot();
    await this.check(label);
    return this.contents();
  }

  async open(label: Label, parts: PlaceParts, { scans, ...options }: PlaceOptions): Promise<OpenPlace> {
    await this.checkRoot();
    await this.make().catch((error: Error) => fail("INVALID_REQUEST", `the device's folder cannot be created: ${error.message}`, { cause: error }));
    await this.check(label);
    await this.quarantineIncomplete();
    const cold: ColdParts = { ...options, announces: scans, quarantine: (file) => this.quarantine(file) };
    const disk = await OwnDisk.open({ ...parts, folder: this.path, capacityBytes: this.#spec.capacityBytes ?? 0, cold });
    try {
      await this.claim(label);
    } catch (error) {
      await disk.close();
      throw error;
    }
    return { disk, probe: async () => undefined, schedule: (isOn) => disk.setSchedulable(cold, isOn), close: async () => undefined };
  }

  get path(): string {
    return join(this.root, this.#name);
  }

  /** @throws STORE_CONFLICT where the folder belongs to another device, or to a later start of this owner. */
  async check({ deviceID, tenant, epoch }: Label): Promise<void> {
    const kept = await this.#label();
    if (kept === undefined) return;
    if (kept.deviceID !== deviceID || kept.tenant !== tenant)
      fail("STORE_CONFLICT", `${this.path} is the folder of device ${kept.deviceID} of ${kept.tenant === "" ? "all tenants" : `tenant ${kept.tenant}`}`);
    if (kept.epoch > epoch) fail("STORE_CONFLICT", `stale epoch ${epoch}: ${this.path} is served by ${kept.stableID} since epoch ${kept.epoch}`);
  }

  /** Writes this owner's label. The caller has made sure that no other process uses the folder. */
  async claim(label: Label): Promise<void> {
    await this.check(label);
    const path = join(this.path, LABEL);
    await writeFile(`${path}.new`, `${JSON.stringify(label)}\n`, { flush: true });
    await rename(`${path}.new`, path);
  }

  /** @throws INVALID_REQUEST where the root does not exist: a missing mount must not fill the parent file system instead. */
  async checkRoot(): Promise<void> {
    const found = await stat(this.root).catch((error: Error) =>
      fail("INVALID_REQUEST", `expected a folder on the host of the device's owner, got ${this.root}: ${error.message}; make or mount it first`, {
        cause: error,
      }),
    );
    if (!found.isDirectory()) fail("INVALID_REQUEST", `expected a folder on the host of the device's owner, got ${this.root}, which is not a folder`);
  }

  async make(): Promise<void> {
    await mkdir(this.path, { recursive: true, mode: 0o700 });
  }

  /** Must run before the folder is opened, which deletes incomplete files. */
  async quarantineIncomplete(): Promise<void> {
    const pending = join(this.path, "pending");
    for (const name of await namesIn(pending)) {
      await mkdir(this.#areas.pending, { recursive: true, mode: 0o700 });
      await rename(join(pending, name), join(this.#areas.pending, name));
    }
  }

  async quarantine(file: number): Promise<void> {
    const name = file.toString(16).padStart(8, "0");
    await mkdir(this.#areas.final, { recursive: true, mode: 0o700 });
    await rename(join(this.path, name), join(this.#areas.final, name));
  }

  /** Returns a page of the quarantine, and its total size. */
  async quarantined(from: number): Promise<ColdAnswers["quarantine"]> {
    const all: QuarantinedFile[] = [];
    let totalBytes = 0;
    let count = 0;
    for (const area of ["final", "pending"] as const)
      for (const name of await namesIn(this.#areas[area])) {
        const found = await stat(join(this.#areas[area], name)).catch(() => undefined);
        if (found === undefined) continue;
        totalBytes += found.size;
        if (count++ < from || all.length >= PAGE) continue;
        const [file_name, encoded_path] = [name, join(area === "final" ? this.#name : join(PENDING, this.#name), QUARANTINE, name)];
        all.push({ area, file_name, encoded_path, size_bytes: found.size, modified_at_ms: Math.floor(found.mtimeMs) });
      }
    return { rootDir: this.root, count, totalBytes, files: all };
  }

  /** Counts the objects' files in the folder, independent of the process that serves them. */
  async contents(): Promise<Looked> {
    let [files, usedBytes] = [0, 0];
    for (const name of await namesIn(this.path)) {
      if (!/^[0-9a-f]{8}$/.test(name)) continue;
      files++;
      usedBytes += (await stat(join(this.path, name)).catch(() => undefined))?.size ?? 0;
    }
    return { files, usedBytes };
  }

  /** Returns the default capacity for objects: nine tenths of the file system. */
  async capacityBytes(): Promise<number> {
    const { blocks, bsize } = await statfs(this.root).catch((error: Error) => fail("INVALID_REQUEST", `${this.root}: ${error.message}`, { cause: error }));
    return Math.floor(blocks * bsize * DEFAULT_SHARE);
  }

  get #areas() {
    return { final: join(this.path, QUARANTINE), pending: join(this.root, PENDING, this.#name, QUARANTINE) };
  }

  async #label(): Promise<Label | undefined> {
    try {
      return JSON.parse(await readFile(join(this.path, LABEL), "utf8")) as Label;
    } catch {
      return undefined;
    }
  }
}

const namesIn = (folder: string): Promise<string[]> =>
  readdir(folder).then(
    (names) => names.sort(),
    () => [],
  );
