// A node's checkpoints, layers and their transfer, without a sandbox: for tests of files, chunks and manifests.
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openObjects } from "@svc/kit/objects/open-objects.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { openInitKeys } from "../src/agent/init-keys.ts";
import { openCheckpoints } from "../src/records/checkpoints.ts";
import { openRecords, type Records } from "../src/records/records.ts";
import { openRegistry } from "../src/records/registry.ts";
import type { Neighbours } from "../src/snapshot-transfer/neighbour.ts";
import { openSnapshotTransfer, type SnapshotTransfer } from "../src/snapshot-transfer/open-snapshot-transfer.ts";
import { openBuilds } from "../src/template/builds.ts";
import { openCopies } from "../src/template/copies.ts";
import { openDatabase } from "../src/template/database.ts";
import { openImages } from "../src/template/images.ts";
import { openLayers } from "../src/template/layers.ts";
import type { Template } from "../src/template/template.ts";

const quarantine = { add: () => {}, addUnreadable: () => {}, drop: () => {}, find: () => undefined };
let made = 0;
const log = openLog("test", "fatal");
export const MIB = 2 ** 20;
export const TRANSFER_API_KEY = "k".repeat(40);

export type TransferHome = AsyncDisposable & {
  readonly home: string;
  readonly transfer: SnapshotTransfer;
  readonly records: Records;
  readonly registry: ReturnType<typeof openRegistry>;
  readonly checkpoints: Awaited<ReturnType<typeof openCheckpoints>>;
  readonly layers: Awaited<ReturnType<typeof openLayers>>;
  readonly images: Awaited<ReturnType<typeof openImages>>;
  readonly envd: string;
  /** The number of bytes transferred so far. */
  moved(direction: "kept" | "peer"): Promise<number>;
  readonly base: { readonly rootfs: string; readonly binds: readonly string[] };
  /** Makes a snapshot of these files over the base or the given image; returns its id. */
  keep(
    files: Readonly<Record<string, Buffer>>,
    options?: { readonly kind?: "memory" | "filesystem"; readonly image?: { rootfs: string; binds: readonly string[] }; readonly name?: string },
  ): Promise<string>;
};

export type TransferHomeOptions = {
  /** The text of the base's one file; two homes with the same text have the same template. */
  readonly base?: string;
  /** Homes with the same secret belong to one deployment. */
  readonly secret?: string;
  readonly objects?: string;
  readonly importMB?: number;
  readonly durable?: boolean;
  readonly home?: string;
  readonly nodeID?: string;
  readonly neighbours?: Neighbours;
  /** Sandboxes whose records are quarantined. */
  readonly quarantine?: Set<string>;
};

const objectSettings = {
  url: "",
  endpoint: "",
  region: "us-east-1",
  path_style: true,
  credentials_file: "",
  concurrency: 4,
  bandwidth_mb_per_second: 0,
  collect_interval_seconds: 0,
  collect_grace_seconds: 0,
};

export async function openTransferHome(options: TransferHomeOptions = {}): Promise<TransferHome> {
  const { base: says = "base", secret = "one deployment", objects = "", importMB = 1024, durable = false, nodeID = "node-one", neighbours } = options;
  const home = options.home ?? mkdtempSync(join(tmpdir(), "svc-transfer-"));
  const rootfs = join(home, "templates/base/rootfs");
  mkdirSync(join(rootfs, "etc"), { recursive: true });
  writeFileSync(join(rootfs, "etc/issue"), says);
  mkdirSync(join(home, "bin"), { recursive: true });
  const program = Buffer.from("#!/bin/sh\necho envd\n");
  const envd = `envd-${createHash("sha256").update(program).digest("hex").slice(0, 16)}`;
  const spawner = openSpawner();
  const db = openDatabase(join(home, "templates.db"));
  const records = openRecords(join(home, "sandboxes.db"), { quarantine });
  const clock = { monotonicMs: () => 0, wallMs: () => 1_700_000_000_000 };
  const registry = openRegistry(records, "seed".repeat(8), clock, quarantine);
  const checkpoints = await openCheckpoints(join(home, "snapshots"), spawner, log);
  const layers = await openLayers(join(home, "layers"), spawner, { quarantine, durability: "process" });
  const images = await openImages(home, layers, db, spawner, Date.now);
  const copies = openCopies(db);
  const builds = openBuilds(db, Date.now, quarantine);
  const initKeys = openInitKeys(home, createHash("sha256").update(secret).digest("hex"));
  const base = { rootfs, binds: [] };
  const template = { name: "base", templateID: "base", recipe: "base-1", createdAt: "2026", image: base } as unknown as Template;
  const setUp = { list: () => [template], bears: (name: string) => name === "base" };
  const metrics = openMetrics();
  const transfer = await openSnapshotTransfer({
    home,
    settings: { snapshots: { durable, import_mb: importMB }, objects: { ...objectSettings, url: objects }, durability: "process" },
    env: process.env,
    initKeys,
    bootID: "boot",
    spawner,
    checkpoints,
    registry,
    snapshots: records.snapshots,
    quarantine: { find: (_kind, name) => (options.quarantine?.has(name) === true ? { kind: "sandbox", name, reason: "its driver is gone" } : undefined) },
    templates: {
      builder: { layers, layersInHand: new Map(), builds, copies },
      images,
      index: setUp,
      dropCopy: async (id: string) => copies.remove(id),
      snapshots: {
        async remove(id: string) {
          const snapshot = records.snapshots.find(id);
          if (snapshot === undefined) return false;
          records.snapshots.remove(id);
          await checkpoints.remove(snapshot.checkpointID);
          return true;
        },
      },
    } as never,
    setUp: setUp as never,
    runtimes: new Map([["gvisor", { program: async () => "runsc-0123456789abcdef" }]]),
    sharing: undefined,
    catalog: undefined,
    nodeID: () => nodeID,
    apiKey: TRANSFER_API_KEY,
    neighbours,
    metrics,
    report: () => {},
    log,
  });
  return {
    home,
    transfer,
    records,
    registry,
    checkpoints,
    layers,
    images,
    envd,
    async moved(direction) {
      return Number(new RegExp(`svc_node_snapshot_transfer_bytes_total\\{direction="${direction}"\\} (\\d+)`).exec(await metrics.text())?.[1] ?? 0);
    },
    base,
    async keep(files, { kind = "filesystem", image = base, name } = {}) {
      writeFileSync(join(home, "bin", envd), program);
      const checkpointID = checkpoints.newID();
      const write = async ({ directory }: { directory: string }) => {
        for (const [file, bytes] of Object.entries(files)) await writeFile(join(directory, file), bytes);
      };
      const { sizeBytes } = await checkpoints.take(checkpointID, kind, "gvisor", write, {
        templateID: "base",
        envd,
        envdVersion: "1",
        initKey: initKeys.current,
        rootfs: images.chainOf(image).base?.rootfs,
      });
      const snapshotID = `snap${(++made).toString(16).padStart(20, "0")}`;
      const limits = { cpuCount: 2, memoryMB: 512, diskSizeMB: 1024, pids: 64 };
      const shown = {
        sandboxID: "i0000000000000000000",
        templateID: "base",
        user: "user",
        workdir: "/home/user",
        env: { A: "b" },
        createdAtWallMs: 1_700_000_000_000,
      };
      records.snapshots.add({ ...shown, snapshotID, checkpointID, kind, runtime: "gvisor", image, limits, envd, envdVersion: "1", sizeBytes }, name);
      return snapshotID;
    },
    async [Symbol.asyncDispose]() {
      await transfer.close();
      await checkpoints.close();
      await images.close(true);
      records.close();
      db.close();
      await spawner[Symbol.asyncDispose]();
      if (options.home === undefined) rmSync(home, { recursive: true, force: true });
    },
  };
}

/** Returns a snapshot's complete export file. */
export async function fileOf({ transfer }: TransferHome, asked: string, withBase = false): Promise<Buffer> {
  const file = await transfer.files.export(asked, withBase);
  const parts: Buffer[] = [];
  for await (const part of file.body) parts.push(part);
  file.close();
  return Buffer.concat(parts);
}

export async function* inParts(file: Buffer, partBytes = 1_000_003): AsyncGenerator<Buffer> {
  for (let at = 0; at < file.length; at += partBytes) yield file.subarray(at, at + partBytes);
}

export const objectsIn = (folder: string) => openObjects({ ...objectSettings, url: `file://${folder}` }, "process", process.env);
