// Receives a transferred checkpoint: its files, its envd and what it is based on, each verified; after a failure nothing of it is left.
import { access, chmod, mkdtemp, rename, rm, statfs } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import type { Spawner } from "@svc/kit/spawn.ts";
import { syncAll } from "@svc/kit/sync.ts";
import { envdPath } from "../agent/binary.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import { SEALED } from "../runtime/checkpoint.ts";
import { PROGRAM_NAME, programPath } from "../runtime/gvisor-programs.ts";
import type { RootImage } from "../runtime/runtime.ts";
import type { Chain } from "../template/build-record.ts";
import type { Images } from "../template/images.ts";
import type { Layers } from "../template/layers.ts";
import type { TemplateSource } from "../template/template.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import { type Here, mustFit } from "./fits.ts";
import { chunksOf, type Manifest, type ReadManifest, type TransferFile, type TransferImage } from "./manifest.ts";
import type { Packs } from "./packs.ts";
import { openPlacing, type Placing, type Target } from "./placing.ts";

export type ReceiveParts = {
  readonly folder: string;
  readonly here: Here;
  /** The init key of new sandboxes. */
  readonly currentKey: string;
  readonly maxBytes: number;
  readonly checkpoints: Pick<Checkpoints, "newID" | "take" | "remove">;
  readonly images: Pick<Images, "of">;
  readonly layers: Pick<Layers, "folder" | "add" | "info" | "remove">;
  /** Layers that no record references yet. */
  readonly layersInHand: Map<string, number>;
  readonly setUp: Pick<TemplateSource, "list">;
  readonly packs: Packs;
  readonly thread: ChunkThread;
  readonly spawner: Spawner;
};

export type Received = { readonly checkpointID: string; readonly sizeBytes: number; readonly image: RootImage; readonly movedBytes: number };

type Fetch = (placing: Placing) => Promise<void>;

/** Calls `fetch` to place all wanted chunks. @throws SNAPSHOT_UNSUITABLE, SNAPSHOT_DAMAGED, PAYLOAD_TOO_LARGE, DISK_FULL, and what `fetch` throws. */
export async function receive(
  parts: ReceiveParts,
  read: ReadManifest,
  fetch: Fetch,
  checkpointID = parts.checkpoints.newID(),
  templateID = read.manifest.sandbox?.templateID ?? read.manifest.snapshot?.templateID ?? "",
): Promise<Received> {
  const { manifest } = read;
  const { checkpoints, thread } = parts;
  await mustFit(read, parts.here);
  const work = await mkdtemp(join(parts.folder, "in-"));
  try {
    const basis = await findBasis(parts, manifest.image);
    const targets: Target[] = [];
    const envd = envdPath(parts.here.home, manifest.envd.name);
    const newEnvd = (await isThere(envd)) ? undefined : join(work, "envd");
    if (newEnvd !== undefined) targets.push({ file: manifest.envd.file, path: newEnvd });
    const program = await missingProgram(parts, manifest);
    const newProgram = program === undefined ? undefined : join(work, "runsc");
    if (program !== undefined && newProgram !== undefined) targets.push({ file: program.file, path: newProgram });
    targets.push(...archivesOf(basis, work));
    const files = manifest.files.map((file) => ({ file, path: file.name }));
    await mustFitOnDisk(parts, [...targets, ...files]);
    let movedBytes = 0;
    const write = async (directory: string) => {
      const placing = await openPlacing(thread, [...targets, ...files.map(({ file, path }) => ({ file, path: join(directory, path) }))]);
      movedBytes = placing.wantedBytes;
      await fetch(placing);
      placing.mustBeWhole();
      if (newEnvd !== undefined) await keepEnvd(parts, manifest, newEnvd, envd);
      if (program !== undefined && newProgram !== undefined) await keepProgram(parts, program.name, newProgram);
    };
    const { sizeBytes } = await checkpoints.take(checkpointID, manifest.kind, manifest.runtime, ({ directory }) => write(directory), {
      templateID,
      envd: manifest.envd.name,
      envdVersion: manifest.envd.version,
      initKey: initKeyOf(parts, manifest),
      rootfs: basis.base?.rootfs,
      processor: manifest.processor,
    });
    try {
      return { checkpointID, sizeBytes, image: await assemble(parts, manifest.image, basis, work), movedBytes };
    } catch (error) {
      await checkpoints.remove(checkpointID);
      throw error;
    }
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** Like `receive`, but only for the image of sandboxes that start without stored memory. */
export async function receiveImage(parts: ReceiveParts, image: TransferImage, fetch: Fetch): Promise<Pick<Received, "image" | "movedBytes">> {
  // I38
  const work = await mkdtemp(join(parts.folder, "in-"));
  try {
    const basis = await findBasis(parts, image);
    const targets = archivesOf(basis, work);
    await mustFitOnDisk(parts, targets);
    const placing = await openPlacing(parts.thread, targets);
    const movedBytes = placing.wantedBytes;
    await fetch(placing);
    placing.mustBeWhole();
    return { image: await assemble(parts, image, basis, work), movedBytes };
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/** A sandbox from another deployment's files starts under the init key of new sandboxes. */
export function initKeyOf({ here, currentKey }: Pick<ReceiveParts, "here" | "currentKey">, { deployment }: Manifest): string {
  return here.isOurs(deployment) ? deployment : currentKey;
}

type Missing = { readonly file: TransferFile; readonly note: string };
/** `known` maps archives to layers that this node has. */
type Basis = { readonly base: RootImage | undefined; readonly known: ReadonlyMap<TransferFile, string>; readonly missing: readonly Missing[] };

const archivesOf = ({ missing }: Basis, work: string): Target[] => missing.map(({ file }, at) => ({ file, path: join(work, `layer-${at}.tar`) }));

/** Finds which parts are already here. @throws SNAPSHOT_UNSUITABLE if a setup template is neither here nor transferred with it. */
async function findBasis({ packs, layers, setUp }: ReceiveParts, image: TransferImage): Promise<Basis> {
  const known = new Map<TransferFile, string>();
  const missing: Missing[] = [];
  const look = async (file: TransferFile, note: string) => {
    const layerID = await packs.layerOf(file);
    if (layerID !== undefined && layers.info(layerID) !== undefined) known.set(file, layerID);
    else missing.push({ file, note });
  };
  const base = image.base === undefined ? undefined : await findBase(packs, setUp, image.base);
  if (image.base !== undefined && base === undefined) {
    if (image.base.packed === undefined)
      fail(
        "SNAPSHOT_UNSUITABLE",
        `it is based on template '${image.base.name}' (${image.base.recipe}, content ${image.base.content.slice(0, 16)}), which this node does not have in that version; set up both nodes with the same version of svc, or export it with --with-base`,
      );
    await look(image.base.packed, `template ${image.base.name} ${image.base.recipe}`);
  }
  for (const { packed, note } of image.layers) await look(packed, note);
  return { base, known, missing };
}

/** Returns true if the base template is here or is transferred with it. */
export async function hasBase({ packs, setUp }: Pick<ReceiveParts, "packs" | "setUp">, { base }: TransferImage): Promise<boolean> {
  return base === undefined || base.packed !== undefined || (await findBase(packs, setUp, base)) !== undefined;
}

async function findBase(packs: Packs, setUp: Pick<TemplateSource, "list">, wanted: NonNullable<TransferImage["base"]>): Promise<RootImage | undefined> {
  const plain = setUp.list().filter(({ image }) => image.binds.length === 0);
  // Templates of the same recipe come first, because each other one costs one scan of all its files.
  const ordered = [...plain.filter(({ recipe }) => recipe === wanted.recipe), ...plain.filter(({ recipe }) => recipe !== wanted.recipe)];
  for (const { image } of ordered) if ((await packs.contentOf(image.rootfs)) === wanted.content) return image;
  return undefined;
}

/** Creates the missing layers and returns the image of all layers. */
async function assemble(parts: ReceiveParts, image: TransferImage, { base, known, missing }: Basis, work: string): Promise<RootImage> {
  const { layers, layersInHand, packs } = parts;
  const found = new Map(known);
  for (const [at, { file, note }] of missing.entries()) {
    const archive = join(work, `layer-${at}.tar`);
    const layer = await layers.add(note, (diff) => packs.unpack(archive, diff));
    if (layer === undefined) fail("SNAPSHOT_DAMAGED", "an archive of its template is empty");
    await rm(archive, { force: true });
    if (file === image.base?.packed && (await packs.contentOf(join(layers.folder, layer.layerID, "diff"))) !== image.base.content) {
      await layers.remove(layer.layerID);
      fail("SNAPSHOT_DAMAGED", "the files of its template do not match its manifest");
    }
    layersInHand.set(layer.layerID, Date.now());
    await packs.noteLayer(file, layer.layerID);
    found.set(file, layer.layerID);
  }
  const layerOf = (file: TransferFile) => {
    const layerID = found.get(file) ?? fail("INTERNAL", "a layer does not exist and could not be created");
    layersInHand.set(layerID, Date.now());
    return layerID;
  };
  const below = image.base?.packed !== undefined && base === undefined ? [layerOf(image.base.packed)] : [];
  const chain: Chain = { base, layers: [...below, ...image.layers.map(({ packed }) => layerOf(packed))] };
  return parts.images.of(chain);
}

/** The name is the hash of its content, so an envd from another deployment cannot replace ours. */
async function keepEnvd({ spawner }: ReceiveParts, manifest: Manifest, path: string, envd: string): Promise<void> {
  const found = await spawner.check(["sha256sum", "--", path], { repeatable: true });
  if (`envd-${found.slice(0, 16)}` !== manifest.envd.name) fail("SNAPSHOT_DAMAGED", `its envd is not ${manifest.envd.name}`);
  await chmod(path, 0o755);
  await rename(path, envd);
}

/** Returns the program that wrote the memory if this node does not have it. */
async function missingProgram(
  { here: { home } }: ReceiveParts,
  { kind, program, programFile }: Manifest,
): Promise<{ name: string; file: TransferFile } | undefined> {
  if (kind !== "memory" || program === undefined || programFile === undefined) return undefined;
  if (!PROGRAM_NAME.test(program)) fail("SNAPSHOT_DAMAGED", `its manifest names the program ${JSON.stringify(program)}; expected runsc- and 16 hex digits`);
  return (await isThere(programPath(home, program))) ? undefined : { name: program, file: programFile };
}

/** The program runs as root here, so only a manifest of this deployment, against which each chunk was verified, may bring one. */
async function keepProgram({ spawner, here: { home } }: ReceiveParts, name: string, path: string): Promise<void> {
  const found = await spawner.check(["xxh128sum", "--", path], { repeatable: true });
  if (`runsc-${found.slice(0, 16)}` !== name) fail("SNAPSHOT_DAMAGED", `its runsc is not ${name}`);
  await chmod(path, 0o755);
  await syncAll([path]);
  await rename(path, programPath(home, name));
  await syncAll([join(home, "bin")]);
}

/** Checks the space before the first byte is written. */
async function mustFitOnDisk({ folder, maxBytes }: ReceiveParts, targets: readonly Target[]): Promise<void> {
  let bytes = 0;
  for (const { file } of targets) {
    let written = 0;
    for (const { length } of chunksOf(file)) written += length;
    // Sparse files are counted in full, because their checksums are computed over their holes too; sealed files have no checksums.
    bytes += file.name.startsWith(SEALED) ? written : file.sizeBytes;
  }
  if (bytes > maxBytes) fail("PAYLOAD_TOO_LARGE", `it takes ${bytes} bytes here; snapshots.import_mb allows ${maxBytes}`);
  const { bavail, bsize } = await statfs(folder);
  if (bytes > bavail * bsize) fail("DISK_FULL", `it takes ${bytes} bytes here, and the disk under ${folder} has ${bavail * bsize} left`);
}

const isThere = (path: string) =>
  access(path).then(
    () => true,
    () => false,
  );
