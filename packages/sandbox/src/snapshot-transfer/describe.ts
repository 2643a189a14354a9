// Describes a transfer: the files of a checkpoint and all that it is based on, each with its chunks' names and the location of its bytes.
import { access, readdir, readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { fail } from "@svc/contract/failures.ts";
import { envdPath } from "../agent/binary.ts";
import type { Checkpoints } from "../records/checkpoints.ts";
import { programPath } from "../runtime/gvisor-programs.ts";
import type { RootImage } from "../runtime/runtime.ts";
import type { Images } from "../template/images.ts";
import type { Layers } from "../template/layers.ts";
import type { Template, TemplateSource } from "../template/template.ts";
import type { ChunkThread } from "./chunk-thread.ts";
import { type ChunkPlace, chunksOf, type Manifest, type TransferFile, type TransferImage } from "./manifest.ts";
import { describeFile, type Packs } from "./packs.ts";

export type Source = {
  readonly file: TransferFile;
  /** Returns the path of the bytes; the archive of a folder is made on the first call. */
  readonly path: () => Promise<string>;
};

export type Described = AsyncDisposable & { readonly manifest: Manifest; readonly sources: readonly Source[] };
export type DescribedImage = AsyncDisposable & { readonly image: TransferImage; readonly sources: readonly Source[] };

export type Subject = Pick<Manifest, "kind" | "runtime" | "limits" | "snapshot" | "sandbox"> & {
  readonly checkpointID: string;
  readonly image: RootImage;
  readonly envd: string;
  readonly envdVersion: string;
};

export type DescribeParts = {
  readonly home: string;
  /** The init key of a checkpoint that does not name one. */
  readonly unnamedKey: string;
  readonly checkpoints: Pick<Checkpoints, "find" | "verify">;
  readonly images: Pick<Images, "chainOf">;
  readonly layers: Pick<Layers, "folder" | "info" | "verify">;
  readonly setUp: Pick<TemplateSource, "list">;
  readonly thread: ChunkThread;
  readonly packs: Packs;
};

/** Describes the files of a setup template, identified by their content, for the transfer. */
export type BaseFile = (content: string, rootfs: string) => Promise<TransferFile>;

/** Without `baseFile` the base's files are not transferred. The caller holds the checkpoint. @throws SNAPSHOT_DAMAGED, CHECKPOINT_UNAVAILABLE. */
export async function describe(parts: DescribeParts, subject: Subject, baseFile: BaseFile | undefined): Promise<Described> {
  const { checkpoints, thread, packs, home } = parts;
  const { checkpointID, image, envd, envdVersion, ...rest } = subject;
  // The processor is not checked here, because the snapshot may be used on another machine.
  await checkpoints.verify(checkpointID, false);
  const { directory, sizeBytes, initKey, processor } = await checkpoints.find(checkpointID);
  const { sources, add, packed, undo } = openSources(parts.packs);
  try {
    const files: TransferFile[] = [];
    for (const name of (await readdir(directory)).sort()) {
      const path = join(directory, name);
      files.push(add(await describeFile(thread, name, path), async () => path));
    }
    const envdFile = await describeFile(thread, "envd", envdPath(home, envd));
    add(envdFile, async () => envdPath(home, envd));
    const program = rest.kind === "memory" ? await readFile(join(directory, "runsc"), "utf8").catch(() => undefined) : undefined;
    // An export as a plain file leaves the program out to stay small, for nodes of one version; any other transfer must start everywhere.
    const itsPath = program === undefined || baseFile === undefined ? undefined : await pathOfProgram(home, program);
    const programFile = itsPath === undefined ? undefined : await packs.describeNamed(program ?? "", itsPath);
    if (programFile !== undefined) add(programFile, async () => itsPath ?? "");
    const manifest: Manifest = {
      exportedAt: new Date().toISOString(),
      deployment: initKey ?? parts.unnamedKey,
      ...rest,
      captureID: checkpointID,
      ...(program === undefined ? {} : { program }),
      ...(programFile === undefined ? {} : { programFile }),
      envd: { name: envd, version: envdVersion, file: envdFile },
      ...(processor === undefined ? {} : { processor }),
      heldBytes: sizeBytes,
      image: await describeImage(parts, image, baseFile, packed),
      files,
    };
    return { manifest, sources, [Symbol.asyncDispose]: undo };
  } catch (error) {
    await undo();
    throw error;
  }
}

/** Returns undefined if the program is gone; the memory then starts only on nodes that have it. */
async function pathOfProgram(home: string, program: string): Promise<string | undefined> {
  const path = programPath(home, program);
  return access(path).then(
    () => path,
    () => undefined,
  );
}

/** Describes the image only, for sandboxes that start without stored memory. */
export async function describeAlone(parts: DescribeParts, image: RootImage, baseFile: BaseFile | undefined): Promise<DescribedImage> {
  const { sources, packed, undo } = openSources(parts.packs);
  try {
    return { image: await describeImage(parts, image, baseFile, packed), sources, [Symbol.asyncDispose]: undo };
  } catch (error) {
    await undo();
    throw error;
  }
}

function openSources(packs: Pick<Packs, "make">) {
  const sources: Source[] = [];
  const made: Promise<string>[] = [];
  const add = (file: TransferFile, path: () => Promise<string>) => {
    sources.push({ file, path });
    return file;
  };
  const packed: Packed = (file, folder) => {
    let making: Promise<string> | undefined;
    return add(file, () => {
      if (making === undefined) {
        making = packs.make(folder);
        made.push(making);
      }
      return making;
    });
  };
  const undo = async () => {
    for (const path of await Promise.allSettled(made)) if (path.status === "fulfilled") await rm(path.value, { force: true });
  };
  return { sources, add, packed, undo };
}

type Packed = (file: TransferFile, folder: string) => TransferFile;

async function describeImage(
  { images, layers, packs, setUp }: DescribeParts,
  image: RootImage,
  baseFile: BaseFile | undefined,
  packed: Packed,
): Promise<TransferImage> {
  const chain = images.chainOf(image);
  const { base } = chain;
  if (base !== undefined && base.binds.length > 0)
    fail(
      "CHECKPOINT_UNAVAILABLE",
      `it uses this host's own ${base.binds.join(", ")}, which cannot be exported; use a template with files of its own, such as base`,
    );
  const transferred: TransferImage["layers"] = [];
  for (const layerID of chain.layers) {
    await layers.verify(layerID);
    const folder = join(layers.folder, layerID, "diff");
    const file = await packs.describe(`layer ${layerID}`, "layer.tar", folder);
    transferred.push({ note: layers.info(layerID)?.note ?? "", packed: packed(file, folder) });
  }
  if (base === undefined) return { layers: transferred };
  const content = await packs.contentOf(base.rootfs);
  const { name, templateID, recipe } = templateOf(setUp, base) ?? { name: "", templateID: "", recipe: "" };
  const file = baseFile === undefined ? undefined : packed(await baseFile(content, base.rootfs), base.rootfs);
  return { base: { name, templateID, recipe, content, ...(file === undefined ? {} : { packed: file }) }, layers: transferred };
}

function templateOf(setUp: Pick<TemplateSource, "list">, base: RootImage): Template | undefined {
  return setUp.list().find(({ image }) => image.rootfs === base.rootfs);
}

export type Chunk = ChunkPlace & { readonly source: Source };

/** Yields each chunk to transfer once. */
export function* chunksToSend(sources: readonly Source[]): Generator<Chunk> {
  const seen = new Set<string>();
  for (const source of sources) {
    for (const chunk of chunksOf(source.file)) {
      if (seen.has(chunk.sha256)) continue;
      seen.add(chunk.sha256);
      yield { ...chunk, source };
    }
  }
}

/** @throws SNAPSHOT_DAMAGED if the content has changed since it was described. */
export async function readChunk(thread: ChunkThread, { source, sha256, at, length }: Chunk): Promise<Buffer> {
  const path = await source.path();
  const found = await thread.read(path, at, length);
  if (found?.sha256 === sha256) return found.bytes;
  return fail("SNAPSHOT_DAMAGED", `${path} changed while it was read`);
}
