// `svc transfer`: copies bytes to and from a segment, measures its speed, and shows the path.
import { readFileSync, writeFileSync } from "node:fs";
import { fail } from "@svc/contract/failures.ts";
import type { TransferEngine } from "../engine.ts";
import { addressOf, alloc } from "../memory.ts";
import type { Opcode } from "../status.ts";
import { openEngine, print, readArgs, type ToolArgs, wholeNumber } from "./options.ts";
import type { Tool } from "./tool.ts";

const ADDRESS = ["--address N", "address at the peer, or offset in a file (its first buffer)"] as const;
const LENGTH = ["--length N", "bytes of each request (1 MiB)"] as const;

export const transferTool: Omit<Tool, "run"> = {
  name: "transfer",
  about: "copy to and from a segment, measure it, show the path to it",
  verbs: {
    write: { words: "SEGMENT FILE", does: "copy a file into a segment", options: [ADDRESS], example: "svc transfer write depot weights.bin" },
    read: {
      words: "SEGMENT",
      does: "copy from a segment into a file, or to stdout",
      options: [["--length N", "how many bytes"], ADDRESS, ["--file FILE", "where to write them (stdout)"]],
      example: "svc transfer read depot --length 100000 --file copy.bin",
    },
    bench: {
      words: "SEGMENT",
      does: "measure transfers to or from a segment",
      options: [LENGTH, ["--batch N", "requests of a batch (1)"], ["--seconds N", "how long (3)"], ["--op write|read", "which way (write)"], ADDRESS],
      example: "svc transfer bench depot --length 4096 --batch 64",
    },
    doctor: {
      words: "SEGMENT",
      does: "the path chosen, the ones passed over and why, GB/s",
      options: [ADDRESS],
      example: "svc transfer doctor depot",
    },
    serve: {
      words: "",
      does: "memory for others to try with, until a signal",
      options: [["--length N", "bytes of it (64 MiB)"]],
      example: "svc transfer serve --name depot --host 127.0.0.1",
    },
  },
  options: [
    ["--metadata CONNECTION", "P2PHANDSHAKE (SEGMENT is HOST:PORT), etcd, redis or http (this machine's own metadata server, else setting transfer.metadata)"],
    ["--brand WORD", "first part of the keys (setting transfer.brand)"],
    ["--host ADDRESS", "where others reach this end"],
    ["--name NAME", "name of this end"],
    ["--transports LIST", "shm,tcp by default"],
    ["--config FILE", "a file of settings"],
    ["--output text|json", "how to print (text)"],
  ],
};

const DEFAULT_LENGTH = 1n << 20n;
const DOCTOR_SECONDS = 0.5;
const MAX_SECONDS = 3600;

export async function transfer(verb: string, argv: readonly string[]): Promise<void> {
  const args = readArgs(argv, ["address", "length", "batch", "seconds", "op", "file"]);
  if (verb === "serve") return serve(args);
  const [segment = fail("INVALID_REQUEST", "expected the name of a segment"), file] = args.positionals;
  const transports = segment.startsWith("nvmeof/") ? { ...args, flags: { transports: "nvmeof,tcp", ...args.flags } } : args;
  await using engine = await openEngine(transports, `svc-transfer-${process.pid}`);
  const target = await engine.openSegment(segment);
  const address = wholeNumber(args.flags["address"], "address", await firstAddress(engine, segment));
  if (verb === "write") await write(args, engine, target, address, file);
  else if (verb === "read") await read(args, engine, target, address);
  else if (verb === "bench") await bench(args, engine, target, address);
  else await doctor(args, engine, target, address, segment);
}

async function firstAddress(engine: TransferEngine, segment: string): Promise<bigint> {
  const text = (await engine.getMetadata().segmentDescriptor(segment)) ?? "{}";
  const found = /"buffers":\[\{"addr":(\d+)/.exec(text)?.[1];
  return found === undefined ? 0n : BigInt(found);
}

async function write(args: ToolArgs, engine: TransferEngine, target: bigint, remote: bigint, file: string | undefined): Promise<void> {
  const bytes = readFileSync(file ?? fail("INVALID_REQUEST", "expected SEGMENT FILE"));
  const memory = alloc(bytes.length);
  memory.set(bytes);
  await engine.registerLocalMemory(memory, { remoteAccessible: false });
  await engine.transfer("WRITE", target, [{ local: memory, remote }]);
  print(args, { bytes: bytes.length, address: remote }, `${bytes.length} bytes written at 0x${remote.toString(16)}`);
}

async function read(args: ToolArgs, engine: TransferEngine, target: bigint, remote: bigint): Promise<void> {
  const length = Number(wholeNumber(args.flags["length"], "length", 0n));
  if (length === 0) fail("INVALID_REQUEST", "expected --length, in bytes");
  const memory = alloc(length);
  await engine.registerLocalMemory(memory, { remoteAccessible: false });
  await engine.transfer("READ", target, [{ local: memory, remote }]);
  const file = args.flags["file"];
  if (file !== undefined) writeFileSync(file, memory);
  else await new Promise<void>((resolve, reject) => process.stdout.write(memory, (error) => (error ? reject(error) : resolve())));
}

type Measured = { gbPerSecond: number; operationsPerSecond: number; p50Us: number; p99Us: number };

async function measure(
  engine: TransferEngine,
  opcode: Opcode,
  target: bigint,
  remote: bigint,
  length: number,
  batch: number,
  seconds: number,
): Promise<Measured> {
  const memory = alloc(length * batch);
  await engine.registerLocalMemory(memory, { remoteAccessible: false });
  const triples = new BigUint64Array(batch * 3);
  const start = addressOf(memory);
  for (let i = 0; i < batch; i++) triples.set([start + BigInt(i * length), remote + BigInt(i * length), BigInt(length)], i * 3);
  engine.transferSync(opcode, target, triples);
  const times: number[] = [];
  const begun = performance.now();
  while (performance.now() - begun < seconds * 1000 && times.length < 1_000_000) {
    const at = performance.now();
    engine.transferSync(opcode, target, triples);
    times.push(performance.now() - at);
  }
  const tookSeconds = (performance.now() - begun) / 1000;
  times.sort((a, b) => a - b);
  const at = (share: number) => (times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0) * 1000;
  await engine.unregisterLocalMemory(start);
  return {
    gbPerSecond: (times.length * length * batch) / tookSeconds / 1e9,
    operationsPerSecond: (times.length * batch) / tookSeconds,
    p50Us: at(0.5),
    p99Us: at(0.99),
  };
}

async function bench(args: ToolArgs, engine: TransferEngine, target: bigint, remote: bigint): Promise<void> {
  const length = Number(wholeNumber(args.flags["length"], "length", DEFAULT_LENGTH));
  const batch = Number(wholeNumber(args.flags["batch"], "batch", 1n));
  const seconds = Math.min(MAX_SECONDS, Number(wholeNumber(args.flags["seconds"], "seconds", 3n)));
  if (args.flags["op"] !== undefined && args.flags["op"] !== "read" && args.flags["op"] !== "write")
    fail("INVALID_REQUEST", `--op: expected read or write, got ${args.flags["op"]}`);
  const found = await measure(engine, args.flags["op"] === "read" ? "READ" : "WRITE", target, remote, length, batch, seconds);
  const path = engine.explainPath(target, remote, length);
  print(args, { path, length, batch, ...found }, `${summary(found)}\n${path}`);
}

async function doctor(args: ToolArgs, engine: TransferEngine, target: bigint, remote: bigint, segment: string): Promise<void> {
  await engine.checkSegmentStatus(target);
  const path = engine.explainPath(target, remote, 1);
  // Only reads are measured, since an inspection must not change the peer's memory.
  const longest = await longestRange(engine, segment, remote);
  const found = await measure(engine, "READ", target, remote, longest, 1, DOCTOR_SECONDS);
  print(args, { segment, path, length: longest, ...found }, `${segment}: ${path}\nreads of ${longest} bytes: ${summary(found)}`);
}

async function longestRange(engine: TransferEngine, segment: string, remote: bigint): Promise<number> {
  const text = (await engine.getMetadata().segmentDescriptor(segment)) ?? "{}";
  const lengths = [...text.matchAll(/"addr":(\d+),"length":(\d+)/g)].filter((found) => BigInt(found[1] ?? 0) === remote).map((found) => BigInt(found[2] ?? 0));
  const files = [...text.matchAll(/"length":(\d+)/g)].map((found) => BigInt(found[1] ?? 0));
  const length =
    lengths[0] ??
    (segment.startsWith("nvmeof/") ? files[0] : undefined) ??
    fail("TRANSFER_FAILED", `segment ${segment} publishes no buffer to measure with; register one there first`);
  return Number(length < DEFAULT_LENGTH ? length : DEFAULT_LENGTH);
}

function summary({ gbPerSecond, operationsPerSecond, p50Us, p99Us }: Measured): string {
  return `${gbPerSecond.toFixed(2)} GB/s, ${operationsPerSecond.toFixed(0)} requests/s, p50 ${p50Us.toFixed(1)} us, p99 ${p99Us.toFixed(1)} us`;
}

async function serve(args: ToolArgs): Promise<void> {
  await using engine = await openEngine(args, `svc-transfer-${process.pid}`);
  const memory = alloc(Number(wholeNumber(args.flags["length"], "length", 64n << 20n)));
  const address = await engine.registerLocalMemory(memory);
  print(
    args,
    { segment: engine.getServerName(), address: `0x${address.toString(16)}`, length: memory.length },
    `segment ${engine.getServerName()}: ${memory.length} bytes at 0x${address.toString(16)}`,
  );
  await new Promise((resolve) => {
    const alive = setInterval(() => {}, 1 << 30);
    for (const signal of ["SIGINT", "SIGTERM"] as const)
      process.once(signal, () => {
        clearInterval(alive);
        resolve(undefined);
      });
  });
}
