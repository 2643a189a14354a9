// The client's side of a build context: it finds the files that a COPY names, hashes them, and packs the archive that is sent.
import { createHash } from "node:crypto";
import { createReadStream, createWriteStream } from "node:fs";
import { lstat, mkdtemp, readdir, readFile, readlink, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import type { PlannedStep } from "./dockerfile-step.ts";
import { Failure, fail } from "./failures.ts";
import { globPattern } from "./glob.ts";
import { type TarEntry, tarEnd, tarHeader, tarPadding } from "./tar.ts";

export interface BuildContext {
  /** Returns the entries that COPY `source` matches, sorted by path. @throws FILE_NOT_FOUND when there are none. */
  entries(source: string): TarEntry[];
  /** Covers paths, modes, sizes and contents; times and owners do not count, so that a fresh checkout hits the build cache. */
  hash(source: string): Promise<string>;
  /** Packs to a temporary file, which is removed once `use` has ended. */
  packed<T>(source: string, use: (archive: PackedFiles) => Promise<T>): Promise<T>;
  /** Sends the packed files by PUT. Returns the number of bytes sent. */
  upload(source: string, url: string, headers: Readonly<Record<string, string>>, options?: UploadOptions): Promise<number>;
}

export type PackedFiles = { readonly sizeBytes: number; open(): Readable };

export type UploadOptions = {
  readonly signal?: AbortSignal | undefined;
  /** Called as the archive is sent; `totalBytes` is its size. */
  readonly onBytes?: ((sentBytes: number, totalBytes: number) => void) | undefined;
};

const MAX_ENTRIES = 500_000;
const UPLOAD_MS = 3600_000;

/** Reads the folder's tree once, without the paths that .dockerignore excludes. */
export async function openContext(folder: string): Promise<BuildContext> {
  const ignored = ignoreRules(await readFile(join(folder, ".dockerignore"), "utf8").catch(() => ""));
  const all: TarEntry[] = [];
  await walk("");

  async function walk(below: string): Promise<void> {
    const names = await readdir(join(folder, below)).catch((cause: Error) =>
      fail("FILE_NOT_FOUND", `the context ${folder} cannot be read: ${cause.message}`, { cause }),
    );
    for (const name of names.sort()) {
      const path = below === "" ? name : `${below}/${name}`;
      const info = await lstat(join(folder, path));
      // A `!` rule may re-include a file below an excluded folder, so such a folder must still be walked.
      const out = ignored.test(path);
      const kind = info.isDirectory() ? "folder" : info.isSymbolicLink() ? "link" : info.isFile() ? "file" : undefined;
      if (kind === undefined) continue;
      if (!out) {
        if (all.length >= MAX_ENTRIES)
          fail("INVALID_REQUEST", `the context ${folder} has more than ${MAX_ENTRIES} entries; list what is not needed in .dockerignore`);
        all.push({
          path,
          kind,
          mode: info.mode & 0o7777,
          sizeBytes: kind === "file" ? info.size : 0,
          modifiedAtSeconds: Math.floor(info.mtimeMs / 1000),
          target: kind === "link" ? await readlink(join(folder, path)) : "",
        });
      }
      if (kind === "folder" && (!out || ignored.takesBack)) await walk(path);
    }
  }

  function entries(source: string): TarEntry[] {
    const wanted = source.replace(/^(\.?\/+)+/, "").replace(/\/+$/, "");
    if (wanted === "" || wanted === ".") return all;
    const pattern = all.some(({ path }) => path === wanted) ? undefined : globPattern(wanted);
    const means = (path: string) => (pattern === undefined ? path === wanted : pattern.test(path));
    const found = all.filter(({ path }) => means(path) || parents(path).some(means));
    if (found.length === 0) fail("FILE_NOT_FOUND", `COPY ${source}: nothing in ${folder} matches, or .dockerignore leaves it out`);
    return found;
  }

  async function packed<T>(source: string, use: (archive: PackedFiles) => Promise<T>): Promise<T> {
    const temporary = await mkdtemp(join(tmpdir(), "svc-context-"));
    try {
      const archive = join(temporary, "context.tar.gz");
      await pipeline(Readable.from(tarOf(folder, entries(source))), createGzip({ level: 1 }), createWriteStream(archive));
      return await use({ sizeBytes: (await stat(archive)).size, open: () => createReadStream(archive) });
    } finally {
      await rm(temporary, { recursive: true, force: true });
    }
  }

  return {
    entries,
    async hash(source) {
      const hash = createHash("sha256").update(`svc-context:1\n${source}\n`);
      for (const { path, kind, mode, sizeBytes, target } of entries(source)) {
        hash.update(`${JSON.stringify([path, kind, kind === "link" ? 0 : mode, sizeBytes, target])}\n`);
        if (kind === "file") for await (const chunk of createReadStream(join(folder, path))) hash.update(chunk as Buffer);
      }
      return hash.digest("hex");
    },
    packed,
    upload(source, url, headers, { signal, onBytes } = {}) {
      return packed(source, async ({ sizeBytes, open }) => {
        const bound = AbortSignal.timeout(UPLOAD_MS);
        const response = await fetch(url, {
          method: "PUT",
          headers: { ...headers, "content-length": String(sizeBytes) },
          body: Readable.toWeb(counted(open(), sizeBytes, onBytes)) as ReadableStream,
          duplex: "half",
          signal: signal === undefined ? bound : AbortSignal.any([signal, bound]),
        } as RequestInit);
        const text = await response.text();
        if (!response.ok) throw new Failure("INVALID_REQUEST", `the files of COPY ${source} were refused: HTTP ${response.status} ${text.slice(0, 300)}`);
        return sizeBytes;
      });
    },
  };
}

export type Files = { readonly present: boolean; readonly url?: string | undefined; readonly headers?: Readonly<Record<string, string>> | undefined };

/** Returns the steps with the hashes of their files, all of which the server then has. `ask` is GET /templates/{id}/files/{hash}. */
export async function uploadFiles(
  steps: readonly PlannedStep[],
  context: BuildContext,
  ask: (hash: string) => Promise<Files>,
  onUpload: (source: string, sizeBytes: number | "present") => void = () => {},
  onBytes?: (source: string, sentBytes: number, totalBytes: number) => void,
): Promise<PlannedStep[]> {
  const hashes = new Map<string, string>();
  for (const { type, args, from } of steps) {
    const source = args[0] ?? "";
    if (type !== "COPY" || from !== undefined || hashes.has(source)) continue;
    const hash = await context.hash(source);
    const { present, url, headers = {} } = await ask(hash);
    if (present) onUpload(source, "present");
    else
      onUpload(
        source,
        await context.upload(source, url ?? fail("INTERNAL", "the server returned no URL for the upload"), headers, {
          onBytes: onBytes && ((sent, total) => onBytes(source, sent, total)),
        }),
      );
    hashes.set(source, hash);
  }
  return steps.map((step) => (step.type === "COPY" && step.from === undefined ? { ...step, filesHash: hashes.get(step.args[0] ?? "") ?? "" } : step));
}

/** Reports the progress for each chunk that is read. */
function counted(archive: Readable, totalBytes: number, onBytes: UploadOptions["onBytes"]): Readable {
  let sentBytes = 0;
  archive.on("data", (chunk: Buffer) => {
    sentBytes += chunk.length;
    onBytes?.(sentBytes, totalBytes);
  });
  // Attaching the listener starts the flow; pausing keeps the first chunks for the real reader.
  return archive.pause();
}

async function* tarOf(folder: string, entries: readonly TarEntry[]): AsyncGenerator<Buffer> {
  for (const entry of entries) {
    yield tarHeader(entry);
    if (entry.kind !== "file") continue;
    let sent = 0;
    for await (const chunk of createReadStream(join(folder, entry.path), { end: Math.max(0, entry.sizeBytes - 1) })) {
      if (entry.sizeBytes === 0) break;
      sent += (chunk as Buffer).length;
      yield chunk as Buffer;
    }
    // The entry's header already contains its size, so a file that changed meanwhile would corrupt the archive.
    if (sent !== entry.sizeBytes) fail("INVALID_REQUEST", `${entry.path} changed while it was packed; try again`);
    yield tarPadding(entry.sizeBytes);
  }
  yield tarEnd();
}

export type IgnoreRules = { test(path: string): boolean; readonly takesBack: boolean };

/** Parses .dockerignore: the last rule that matches a path, or a folder above it, decides; `!` re-includes. */
export function ignoreRules(text: string): IgnoreRules {
  const rules = text.split(/\r?\n/).flatMap((line) => {
    const trimmed = line.trim();
    if (trimmed === "" || trimmed.startsWith("#")) return [];
    const back = trimmed.startsWith("!");
    const glob = trimmed
      .slice(back ? 1 : 0)
      .trim()
      .replace(/^(\.?\/+)+/, "")
      .replace(/\/+$/, "");
    return glob === "" || glob === "." ? [] : [{ back, pattern: globPattern(glob) }];
  });
  return {
    takesBack: rules.some(({ back }) => back),
    test(path) {
      let out = false;
      const lineage = [...parents(path), path];
      for (const { back, pattern } of rules) if (lineage.some((each) => pattern.test(each))) out = !back;
      return out;
    },
  };
}

function parents(path: string): string[] {
  const parts = path.split("/");
  return parts.slice(1).map((_, at) => parts.slice(0, at + 1).join("/"));
}
