// `svc segment`: creates, shows and lists segment records, and records where a machine has mounted a file.
import { statSync } from "node:fs";
import { hostname } from "node:os";
import { fail } from "@svc/contract/failures.ts";
import { issueText } from "@svc/contract/issues.ts";
import { type FileRecord, fileRecord, parseRecord, printRecord, ramRecord, type SegmentKind, segmentKey } from "@svc/contract/metadata.ts";
import { EngineCore } from "../engine-core.ts";
import { print, readArgs, type ToolArgs } from "./options.ts";

export const segmentHelp = `svc segment register NAME [--kind ram|nvmeof] [--server NAME] [--file PATH]  create the record, with empty buffers or one file
svc segment mount NAME FILE LOCAL_PATH [--machine NAME]        say where a machine has a file of an nvmeof segment
svc segment show NAME [--kind ram|nvmeof]                      print the record
svc segment list                                              print the keys of all segments
  --metadata CONNECTION   etcd, redis or http (setting transfer.metadata)
  --brand WORD            first part of the keys (setting transfer.brand)
  --output json|text`;

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
    process.stdout.write(`${args.json ? printRecord(record) : JSON.stringify(JSON.parse(printRecord(record)), undefined, 2)}\n`);
    return;
  }
  fail("METADATA_KEY_NOT_FOUND", `there is no record ${kinds.map((kind) => segmentKey(args.brand, kind, name)).join(" or ")}`);
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
