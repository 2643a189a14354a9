// The peers of the transfer bench: our engine, Mooncake's Python engine, the bare machine, and load on a metadata server.
import { execFileSync } from "node:child_process";
import { connect } from "node:net";
import type { TransferEngine } from "../packages/transfer/src/engine.ts";
import type { TransferRequest } from "../packages/transfer/src/request.ts";
import type { LineChild } from "../packages/transfer/test/parts.ts";

export const AREA_BYTES = 64 << 20;
/** One call that ends when the bytes have arrived; a promise of it; or the specification's submit with polling of its status. */
export type Way = "sync" | "promise" | "submit";
export type Measured = { readonly perSecond: number; readonly p50: number; readonly cpuPerGB?: number };

/** Each call writes `batch` ranges of `length` bytes, advancing through the area. perSecond counts writes. */
export async function ours(
  engine: TransferEngine,
  peer: LineChild,
  target: bigint,
  local: bigint,
  remote: bigint,
  length: number,
  batch: number,
  seconds: number,
  way: Way = "sync",
): Promise<Measured> {
  const places = Math.floor(AREA_BYTES / (length * batch));
  const lists = Array.from({ length: Math.min(places, 512) }, (_, place) => {
    const words = new BigUint64Array(batch * 3);
    for (let i = 0; i < batch; i++) {
      const at = BigInt((place * batch + i) * length);
      words.set([local + at, remote + at, BigInt(length)], i * 3);
    }
    return words;
  });
  const once = (i: number) => engine.transferSync("WRITE", target, lists[i % lists.length] as BigUint64Array);
  const onceLater = (i: number) => engine.transfer("WRITE", target, lists[i % lists.length] as BigUint64Array);
  const entries: readonly (readonly TransferRequest[])[] =
    way !== "submit" ? [] : lists.map((words) => Array.from({ length: batch }, (_, at) => requestAt(words, at, target)));
  const submitted = (i: number) => {
    const id = engine.allocateBatchID(batch);
    engine.submitTransfer(id, entries[i % entries.length] as TransferRequest[]);
    for (;;) {
      const { status } = engine.getBatchTransferStatus(id);
      if (status === "COMPLETED") break;
      if (status !== "WAITING" && status !== "PENDING") throw new Error(`a batch ended as ${status}`);
    }
    engine.freeBatchID(id);
  };
  const call = way === "submit" ? submitted : once;
  for (let i = 0; i < 50; i++) way === "promise" ? await onceLater(i) : call(i);
  const peerBefore = await peer.ask<number>({ op: "cpu" });
  const before = process.cpuUsage();
  const times: number[] = [];
  const begun = performance.now();
  for (let i = 0; performance.now() - begun < seconds * 1000; i++) {
    const at = performance.now();
    if (way === "promise") await onceLater(i);
    else call(i);
    times.push(performance.now() - at);
  }
  const took = (performance.now() - begun) / 1000;
  const used = process.cpuUsage(before);
  const cpu = (used.user + used.system) / 1e6 + (await peer.ask<number>({ op: "cpu" })) - peerBefore;
  times.sort((a, b) => a - b);
  return { perSecond: (times.length * batch) / took, p50: (times[times.length >> 1] ?? 0) / 1000, cpuPerGB: cpu / ((times.length * batch * length) / 1e9) };
}

function requestAt(words: BigUint64Array, at: number, targetID: bigint): TransferRequest {
  const [source = 0n, targetOffset = 0n, length = 0n] = words.subarray(at * 3, at * 3 + 3);
  return { opcode: "WRITE", source, targetID, targetOffset, length };
}

/** The same with the Python engine, from its process to another one. */
export async function theirs(
  from: LineChild,
  to: LineChild & { segment: string },
  local: string,
  remote: string,
  length: number,
  batch: number,
  seconds: number,
  way: "sync" | "submit" = "sync",
): Promise<Measured> {
  const command = { op: "repeat", target: to.segment, local, remote, length, batch, way };
  const trial = await from.ask<{ code: number; seconds: number }>({ ...command, rounds: 5 });
  if (trial.code !== 0) throw new Error(`the Python engine failed: ${trial.code}`);
  const rounds = Math.max(5, Math.round((seconds * 5) / trial.seconds));
  const before = await to.ask<number>({ op: "cpu" });
  const run = await from.ask<{ code: number; seconds: number; p50: number; cpu: number }>({ ...command, rounds });
  const cpu = run.cpu + (await to.ask<number>({ op: "cpu" })) - before;
  return { perSecond: (rounds * batch) / run.seconds, p50: run.p50, cpuPerGB: cpu / ((rounds * batch * length) / 1e9) };
}

export function buildRaw(folder: string): (mode: string, length: number, seconds: number, ...more: string[]) => Measured {
  const program = `${folder}/raw`;
  execFileSync("g++", ["-std=c++20", "-O2", "-o", program, new URL("transfer-raw.cc", import.meta.url).pathname]);
  return (mode, length, seconds, ...more) =>
    JSON.parse(execFileSync(program, [mode, String(length), String(seconds), ...more], { encoding: "utf8" })) as Measured;
}

/** Requests per second of a metadata server: each connection puts a key once, then reads it repeatedly. */
export async function metadataLoad(url: string, connections: number, seconds: number): Promise<number> {
  const { hostname, port, pathname } = new URL(url);
  const value = JSON.stringify({ name: "x", protocol: "tcp", buffers: Array.from({ length: 4 }, (_, i) => ({ addr: 140306788904976 + i, length: 1048576 })) });
  let answered = 0;
  let stopping = false;
  const clients = Array.from({ length: connections }, (_, index) => {
    return new Promise<void>((resolve, reject) => {
      const path = `${pathname}?key=${encodeURIComponent(`svc/ram/bench${index}`)}`;
      const put = `PUT ${path} HTTP/1.1\r\nHost: ${hostname}:${port}\r\nContent-Type: application/json\r\nContent-Length: ${value.length}\r\n\r\n${value}`;
      const get = `GET ${path} HTTP/1.1\r\nHost: ${hostname}:${port}\r\n\r\n`;
      const socket = connect({ host: hostname, port: Number(port), noDelay: true }, () => socket.write(put));
      let buffer = "";
      socket.setEncoding("latin1").on("data", (chunk: string) => {
        buffer += chunk;
        const end = buffer.indexOf("\r\n\r\n");
        if (end < 0) return;
        const length = Number(/content-length: *(\d+)/i.exec(buffer)?.[1] ?? 0);
        if (buffer.length < end + 4 + length) return;
        if (!buffer.startsWith("HTTP/1.1 200")) return reject(new Error(buffer.slice(0, 200)));
        buffer = buffer.slice(end + 4 + length);
        answered++;
        if (stopping) {
          socket.end();
          resolve();
          return;
        }
        // One write per nine reads, because engines publish rarely and look each other up often.
        socket.write(answered % 10 === 0 ? put : get);
      });
      socket.on("error", reject);
    });
  });
  const begun = performance.now();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  stopping = true;
  const took = (performance.now() - begun) / 1000;
  const count = answered;
  await Promise.all(clients);
  return count / took;
}
