// `svc segment`: creates, shows and lists segment records, and records where a machine has mounted a file.
import { statSync } from "node:fs";
import { hostname } from "node:os";
import { fail } from "@svc/contract/failures.ts";
import { issueText } from "@svc/contract/issues.ts";
import { type FileRecord, fileRecord, parseRecord, printRecord, ramRecord, type SegmentKind, segmentKey } from "@svc/contract/metadata.ts";
import { EngineCore } from "../engine-core.ts";
import { print, readArgs, type ToolArgs } from "./options.ts";
import type { Tool } from "./tool.ts";

const KIND = ["--kind ram|nvmeof", "of memory, or of a file (ram; with --file, nvmeof)"] as const;

export const segmentTool: Omit<Tool, "run"> = {
  name: "segment",
  about: "create, mount, show and list segment records",
  verbs: {
    register: {
      words: "NAME",
      does: "create the record, with empty buffers or one file",
      options: [KIND, ["--server NAME", "the engine that owns it"], ["--file PATH", "a file as its one buffer"]],
      example: "svc segment register disk --kind nvmeof --server depot --file /data/disk.bin",
    },
    mount: {
      words: "NAME FILE LOCAL_PATH",
      does: "say where a machine has a file of an nvmeof segment",
      options: [["--machine NAME", "which machine (this one)"]],
      example: "svc segment mount disk /data/disk.bin /mnt/disk.bin",
    },
    show: { words: "NAME", does: "print the record", options: [KIND], example: "svc segment show disk" },
    list: { words: "", does: "print the keys of all segments", example: "svc segment list" },
  },
  options: [
    ["--metadata CONNECTION", "etcd, redis or http (this machine's own metadata server, else setting transfer.metadata)"],
    ["--brand WORD", "first part of the keys (setting transfer.brand)"],
    ["--config FILE", "a file of settings"],
    ["--output text|json", "how to print (text)"],
  ],
};

const FIELD_WIDTH = 24;

export async function segment(verb: string, argv: readonly string[]): Promise<void> {
  const args = readArgs(argv, ["kind", "server", "file", "machine"]);
  const records = new RecordStore(args);
  const [name = "", ...rest] = args.positionals;
  if (verb === "list") return list(args, records);
  if (name === "" || name.includes("/")) fail("INVALID_REQUEST", "expected the name of a segment, without slashes");
  if (verb === "register") await register(args, records, name);
  else if (verb === "show") await show(args, records, name);
  else await mount(args, records, name, rest);
}

class RecordStore {
  readonly #core = new EngineCore(false, []);
  readonly #metadata: string;
  constructor(args: ToolArgs) {
    this.#metadata = args.metadata;
  }
  async get(key: string): Promise<unknown> {
    const text = (await this.#core.callAsync("recordGet", [this.#metadata, key])) as string;
    if (text === "") return undefined;
    try {
      return parseRecord(text);
    } catch (error) {
      return damaged(key, (error as Error).message, error);
    }
  }
  async set(key: string, record: unknown): Promise<void> {
    await this.#core.callAsync("recordSet", [this.#metadata, key, printRecord(record)]);
  }
  async keys(prefix: string): Promise<string[]> {
    return Object.keys(JSON.parse((await this.#core.callAsync("recordList", [this.#metadata, prefix])) as string) as object);
  }
}

function damaged(key: string, why: string, cause: unknown): never {
  return fail(
    "METADATA_UNAVAILABLE",
    `the record ${key} is damaged (${why}): its owner's next start writes it again; or delete that key in the metadata store`,
    {
      cause,
    },
  );
}

function kindOf(args: ToolArgs): SegmentKind {
  const kind = args.flags["kind"] ?? (args.flags["file"] === undefined ? "ram" : "nvmeof");
  if (kind === "ram" || kind === "nvmeof") return kind;
  return fail("INVALID_REQUEST", `--kind: expected ram or nvmeof, got ${kind}`);
}

async function register(args: ToolArgs, records: RecordStore, name: string): Promise<void> {
  const kind = kindOf(args);
  const key = segmentKey(args.brand, kind, name);
  if ((await records.get(key)) !== undefined) fail("INVALID_REQUEST", `${key} exists; svc segment show ${name} --kind ${kind} prints it`);
  const file = args.flags["file"];
  const server = args.flags["server"] ?? (kind === "ram" ? name : hostname());
  const record =
    kind === "ram"
      ? ramRecord.parse({ server_name: server, protocol: "rdma", devices: [], priority_matrix: {}, buffers: [] })
      : fileRecord.parse({
          server_name: server,
          protocol: "nvmeof",
          buffers: file === undefined ? [] : [{ length: sizeOf(file), file_path: file, local_path_map: {} }],
        });
  await records.set(key, record);
  print(args, { key, record }, `created ${key}`);
}

async function show(args: ToolArgs, records: RecordStore, name: string): Promise<void> {
  const kinds: readonly SegmentKind[] = args.flags["kind"] === undefined ? ["ram", "nvmeof"] : [kindOf(args)];
  for (const kind of kinds) {
    const record = await records.get(segmentKey(args.brand, kind, name));
    if (record === undefined) continue;
    if (args.json) process.stdout.write(`${printRecord(record)}\n`);
    else printFields(JSON.parse(printRecord(record)) as object);
    return;
  }
  fail("METADATA_KEY_NOT_FOUND", `there is no record ${kinds.map((kind) => segmentKey(args.brand, kind, name)).join(" or ")}`);
}

/** A line for each field, and for each field of each buffer, named by its path: buffers.0.length. */
function printFields(record: object, path = ""): void {
  for (const [name, value] of Object.entries(record) as [string, unknown][]) {
    const full = `${path}${name}`;
    if (typeof value === "object" && value !== null && Object.keys(value).length > 0) printFields(value, `${full}.`);
    else process.stdout.write(`${full.padEnd(FIELD_WIDTH)}  ${typeof value === "object" ? "none" : String(value)}\n`);
  }
}

async function list(args: ToolArgs, records: RecordStore): Promise<void> {
  const keys = [...(await records.keys(`${args.brand}/ram/`)), ...(await records.keys(`${args.brand}/nvmeof/`))];
  if (args.json) process.stdout.write(`${JSON.stringify(keys)}\n`);
  else for (const key of keys) process.stdout.write(`${key}\n`);
}

async function mount(args: ToolArgs, records: RecordStore, name: string, [file, localPath]: readonly string[]): Promise<void> {
  if (file === undefined || localPath === undefined) fail("INVALID_REQUEST", "expected NAME FILE LOCAL_PATH");
  const key = segmentKey(args.brand, "nvmeof", name);
  const found = (await records.get(key)) ?? fail("METADATA_KEY_NOT_FOUND", `there is no record ${key}; svc segment register ${name} --kind nvmeof creates it`);
  const parsed = fileRecord.safeParse(found);
  if (!parsed.success) return damaged(key, issueText(parsed.error), parsed.error);
  const record: FileRecord = parsed.data;
  const machine = args.flags["machine"] ?? hostname();
  let buffer = record.buffers.find(({ file_path }) => file_path === file);
  if (buffer === undefined) {
    // A record that was registered empty gets its file from the first machine that mounts it.
    buffer = { length: sizeOf(localPath), file_path: file, local_path_map: {} };
    record.buffers.push(buffer);
  }
  buffer.local_path_map[machine] = localPath;
  await records.set(key, record);
  print(args, { key, machine, file, localPath }, `${key}: ${machine} has ${file} at ${localPath}`);
}

function sizeOf(path: string): number {
  try {
    return statSync(path).size;
  } catch (error) {
    return fail("INVALID_REQUEST", `${path}: ${(error as Error).message}; its length goes into the record`, { cause: error });
  }
}
