// The masters that the store benches drive, each in its own process, and the load on them.
import { execFile, execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { encodeBody } from "../packages/store/src/rpc/body.ts";
import { RpcClient } from "../packages/store/src/rpc/client.ts";
import { requestHead } from "../packages/store/src/rpc/frame.ts";
import { type ArgsOf, functionID, type Operation, type OperationName, operations } from "../packages/store/src/rpc/operations.ts";
import { clientID, plain, segmentOf } from "../packages/store/test/calls.ts";
import { cpuSeconds, residentBytes } from "./process-usage.ts";

const BRAND = "mooncake";
const SCOPE = `${BRAND}::WrappedMasterService`;
const PING_MS = 500;

export type Load = {
  readonly perSecond: number;
  readonly seconds: number;
  readonly p50: number;
  readonly p99: number;
  readonly bad: number;
  readonly cpuMicros: number;
};

export type Process = { readonly rpcPort: number; readonly httpPort: number; readonly pid: number };

export function buildRaw(folder: string): string {
  const program = join(folder, "store-raw");
  execFileSync("g++", ["-std=c++20", "-O2", "-o", program, new URL("store-raw.cc", import.meta.url).pathname]);
  return program;
}

/** Returns one frame in its wire format. */
export function frameOf<N extends OperationName>(name: N, ...args: ArgsOf<N>): Buffer {
  const { args: schema, argsHash } = operations[name] as unknown as Operation;
  const body = schema === undefined ? Buffer.alloc(0) : encodeBody(schema, argsHash, args, schema.literal);
  return Buffer.concat([requestHead(1, functionID(SCOPE, name), body.length), body]);
}

export function writeFrames(file: string, frames: readonly Buffer[]): void {
  const parts: Buffer[] = [];
  for (const frame of frames) {
    const size = Buffer.alloc(4);
    size.writeUInt32LE(frame.length);
    parts.push(size, frame);
  }
  writeFileSync(file, Buffer.concat(parts));
}

export class Driven {
  readonly name: string;
  readonly process: Process;
  readonly #program: string;
  readonly #timer: NodeJS.Timeout;
  readonly #rpc: RpcClient;

  private constructor(name: string, process: Process, program: string, rpc: RpcClient) {
    this.name = name;
    this.process = process;
    this.#program = program;
    this.#rpc = rpc;
    this.#timer = setInterval(() => void rpc.call("Ping", clientID).catch(() => undefined), PING_MS);
  }

  /** Mounts one segment without memory, since no bytes are transferred. */
  static async mount(name: string, process: Process, program: string, segmentBytes: bigint): Promise<Driven> {
    const rpc = await RpcClient.connect("127.0.0.1", process.rpcPort, { brand: BRAND });
    const segment = segmentOf(1, segmentBytes);
    await rpc.call("MountSegment", segment, clientID);
    await rpc.call("ReMountSegment", [segment], clientID);
    return new Driven(name, process, program, rpc);
  }

  get rpc(): RpcClient {
    return this.#rpc;
  }

  async load(file: string, connections: number, depth: number, kind: "rpc" | "http" = "rpc"): Promise<Load> {
    const before = this.cpuSeconds();
    const port = kind === "rpc" ? this.process.rpcPort : this.process.httpPort;
    const { stdout } = await promisify(execFile)(this.#program, [file, String(port), String(connections), String(depth), kind]);
    const measured = JSON.parse(stdout) as Omit<Load, "cpuMicros">;
    const count = measured.perSecond * measured.seconds;
    return { ...measured, cpuMicros: ((this.cpuSeconds() - before) * 1e6) / count };
  }

  cpuSeconds(): number {
    return cpuSeconds(this.process.pid);
  }

  residentBytes(): number {
    return residentBytes(this.process.pid);
  }

  close(): void {
    clearInterval(this.#timer);
    this.#rpc.close();
  }
}

export const OBJECT_BYTES = 4096n;
const BATCH = 100;
const PART = 100_000;

/** Every key has forty bytes. */
export const keyOf = (prefix: string, at: number) => `${prefix}-${String(at).padStart(39 - prefix.length, "0")}`;

/** Puts keys in batches, with frames in files of that folder; returns the seconds that the puts took. */
export async function fill(driven: Driven, folder: string, prefix: string, count: number): Promise<number> {
  let seconds = 0;
  const sizes = Array.from({ length: BATCH }, () => OBJECT_BYTES);
  const [start, end] = [join(folder, "fill-start"), join(folder, "fill-end")] as const;
  for (let at = 0; at < count; at += PART) {
    const all = Array.from({ length: Math.min(PART, count - at) / BATCH }, (_, batch) =>
      Array.from({ length: BATCH }, (_each, i) => keyOf(prefix, at + batch * BATCH + i)),
    );
    writeFrames(
      start,
      all.map((keys) => frameOf("BatchPutStart", clientID, keys, sizes, plain, "")),
    );
    writeFrames(
      end,
      all.map((keys) =>
        frameOf(
          "BatchPutEnd",
          clientID,
          keys.map((key) => ({ key, checksum: undefined })),
          4,
          "",
        ),
      ),
    );
    for (const each of [start, end]) seconds += (await driven.load(each, 4, 4)).seconds;
  }
  return seconds;
}
