// The transfer engine compared with Mooncake's engine and the bare machine: interleaved rounds, medians.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { alloc } from "../packages/transfer/src/memory.ts";
import { MIB, needsWheel, randomBytes, startChild, startEngine, startWheel } from "../packages/transfer/test/parts.ts";
import { startHttp } from "../packages/transfer/test/services.ts";
import { median, type Row, report } from "./report.ts";
import { healOnce } from "./transfer-heal.ts";
import { measureMetadata } from "./transfer-metadata.ts";
import { startNixl } from "./transfer-nixl.ts";
import { AREA_BYTES, buildRaw, type Measured, ours, theirs } from "./transfer-peers.ts";

const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 5);
const SECONDS = Number(process.env["SVC_BENCH_SECONDS"] ?? 0.5);
const KIB4 = 4096;
const FILE_DEPTH = 32;
const TIMEOUTS_MS = [100, 500, 2_000];

const samples = new Map<string, Measured[]>();
const keep = (name: string, measured: Measured) => samples.set(name, [...(samples.get(name) ?? []), measured]);
const middle = (name: string, member: keyof Measured) => median((samples.get(name) ?? []).map((one) => one[member] ?? Number.NaN));
const folder = mkdtempSync(join(tmpdir(), "svc-bench-"));
const withWheel = needsWheel().skip === false;

async function transfers(): Promise<void> {
  const raw = buildRaw(folder);
  const tcp = await startEngine();
  const host = await startEngine({ transports: ["tcp", "shm"] });
  const tcpPeer = await startChild();
  const hostPeer = await startChild({ transports: ["tcp", "shm"] });
  const memory = alloc(AREA_BYTES);
  const plain = new Uint8Array(AREA_BYTES).fill(1);
  const local = await tcp.registerLocalMemory(memory);
  const plainAt = await host.registerLocalMemory(plain);
  const sharedAt = await host.registerLocalMemory(memory);
  const register = async (peer: typeof tcpPeer, shared: boolean) => {
    const address = await peer.ask<string>({ op: "register", length: AREA_BYTES, shared });
    await peer.ask({ op: "fill", address, length: AREA_BYTES });
    return BigInt(address);
  };
  const remote = await register(tcpPeer, false);
  const mapped = await register(hostPeer, true);
  const ordinary = await register(hostPeer, false);
  const target = await tcp.openSegment(tcpPeer.segment);
  const hostTarget = await host.openSegment(hostPeer.segment);
  const nixl = await startNixl();
  const wheels = withWheel ? [await startWheel("127.0.0.1:1", "P2PHANDSHAKE"), await startWheel("127.0.0.1:2", "P2PHANDSHAKE")] : [];
  const [from, to] = wheels;
  const addresses = await Promise.all(wheels.map(async (wheel) => (await wheel.ask<{ address: string }>({ op: "register", length: AREA_BYTES })).address));
  const shapes = [
    ["4k", KIB4, 1],
    ["4k x64", KIB4, 64],
    ["1m", MIB, 1],
  ] as const;
  for (let round = 0; round < ROUNDS; round++) {
    for (const [name, length, batch] of shapes) {
      if (from !== undefined && to !== undefined) keep(`wheel ${name}`, await theirs(from, to, addresses[0] ?? "", addresses[1] ?? "", length, batch, SECONDS));
      keep(`tcp ${name}`, await ours(tcp, tcpPeer, target, local, remote, length, batch, SECONDS));
      if (batch === 1) keep(`raw tcp ${name}`, raw("tcp", length, SECONDS));
    }
    if (from !== undefined && to !== undefined)
      keep("wheel submit 4k x64", await theirs(from, to, addresses[0] ?? "", addresses[1] ?? "", KIB4, 64, SECONDS, "submit"));
    keep("submit 4k x64", await ours(tcp, tcpPeer, target, local, remote, KIB4, 64, SECONDS, "submit"));
    keep("promise 4k", await ours(tcp, tcpPeer, target, local, remote, KIB4, 1, SECONDS, "promise"));
    keep("memcpy 1m", raw("memcpy", MIB, SECONDS));
    keep("shm 1m", await ours(host, hostPeer, hostTarget, sharedAt, mapped, MIB, 1, SECONDS));
    keep("shm 4k x64", await ours(host, hostPeer, hostTarget, sharedAt, mapped, KIB4, 64, SECONDS));
    if (nixl !== undefined) {
      keep("nixl 1m", await nixl.write(MIB, 1, SECONDS));
      keep("nixl 4k x64", await nixl.write(KIB4, 64, SECONDS));
    }
    for (const [name, length] of [
      ["1m", MIB],
      ["4k", KIB4],
    ] as const) {
      keep(`raw process_vm ${name}`, raw("process_vm", length, SECONDS));
      keep(`process_vm ${name}`, await ours(host, hostPeer, hostTarget, plainAt, ordinary, length, 1, SECONDS));
    }
  }
  await nixl?.close();
  await Promise.all([tcp.freeEngine(), host.freeEngine()]);
  for (const child of [tcpPeer, hostPeer, ...wheels]) await child[Symbol.asyncDispose]();
}

/** Measures how long requests with `timeoutMs` to a stopped peer take to fail. */
async function timeouts(): Promise<void> {
  await using peer = await startChild();
  await using engine = await startEngine({ settings: { log_level: 0 } });
  const source = randomBytes(KIB4);
  await engine.registerLocalMemory(source);
  const remote = BigInt(await peer.ask<string>({ op: "register", length: KIB4 }));
  const target = await engine.openSegment(peer.segment);
  const write = (timeoutMs: number) => engine.transfer("WRITE", target, [{ local: source, remote }], timeoutMs);
  await write(60_000);
  await peer.freeze();
  for (let round = 0; round < ROUNDS; round++)
    for (const timeoutMs of TIMEOUTS_MS) {
      const begun = performance.now();
      await write(timeoutMs).then(
        () => assert.fail("a peer that stands still took bytes"),
        () => undefined,
      );
      keep(`timeout ${timeoutMs}`, { perSecond: 0, p50: (performance.now() - begun) / 1000 });
    }
  peer.thaw();
}

async function healing(): Promise<void> {
  await using engine = await startEngine();
  for (let round = 0; round < ROUNDS; round++) keep("heal", { perSecond: 0, p50: await healOnce(engine) });
}

async function files(): Promise<void> {
  const raw = buildRaw(folder);
  const path = join(folder, "data");
  writeFileSync(path, randomBytes(AREA_BYTES), { flush: true });
  await using service = await startHttp();
  await service.put(
    "svc/nvmeof/disk",
    JSON.stringify({ server_name: "bench", protocol: "nvmeof", buffers: [{ length: AREA_BYTES, file_path: path, local_path_map: {} }] }),
  );
  await using engine = await startEngine({ metadata: service.metadata, name: "bench", transports: ["nvmeof"] });
  const memory = alloc(AREA_BYTES);
  const local = await engine.registerLocalMemory(memory);
  const target = await engine.openSegment("nvmeof/disk");
  const per = KIB4 * FILE_DEPTH;
  const lists = Array.from({ length: AREA_BYTES / per }, (_, place) => {
    const words = new BigUint64Array(FILE_DEPTH * 3);
    for (let i = 0; i < FILE_DEPTH; i++) words.set([local + BigInt(place * per + i * KIB4), BigInt(place * per + i * KIB4), BigInt(KIB4)], i * 3);
    return words;
  });
  for (let round = 0; round < ROUNDS; round++) {
    const bare = raw("ring", KIB4, SECONDS, path, String(FILE_DEPTH));
    keep("raw ring", { perSecond: bare.perSecond * FILE_DEPTH, p50: bare.p50 });
    let count = 0;
    const begun = performance.now();
    for (; performance.now() - begun < SECONDS * 1000; count++) engine.transferSync("READ", target, lists[count % lists.length] as BigUint64Array);
    keep("file", { perSecond: (count * FILE_DEPTH * 1000) / (performance.now() - begun), p50: 0 });
  }
}

function rows(): Row[] {
  const ratio = (a: string, b: string, member: keyof Measured) => middle(a, member) / middle(b, member);
  const us = (name: string) => `${(middle(name, "p50") * 1e6).toFixed(1)} us`;
  const rate = (name: string) => `${(middle(name, "perSecond") / 1000).toFixed(1)} k/s`;
  const gb = (name: string, length: number) => `${((middle(name, "perSecond") * length) / 1e9).toFixed(2)} GB/s`;
  const cpu = (name: string) => `${(middle(name, "cpuPerGB") ?? 0).toFixed(2)} s/GB`;
  const list: Row[] = [];
  const add = (what: string, value: number, unit: string, goal: Row["goal"], note: string) =>
    list.push({ what, value, unit, ...(goal === undefined ? {} : { goal }), note, samples: ROUNDS });
  if (withWheel) {
    add("tcp 4 KiB sync p50, to the Python engine's", ratio("tcp 4k", "wheel 4k", "p50"), "x", { atMost: 0.45 }, `${us("tcp 4k")} against ${us("wheel 4k")}`);
    add(
      "tcp 4 KiB batches of 64, operations/s",
      ratio("tcp 4k x64", "wheel 4k x64", "perSecond"),
      "x",
      { atLeast: 10 },
      `${rate("tcp 4k x64")} against ${rate("wheel 4k x64")}`,
    );
    add("tcp 1 MiB, GB/s", ratio("tcp 1m", "wheel 1m", "perSecond"), "x", { atLeast: 1.4 }, `${gb("tcp 1m", MIB)} against ${gb("wheel 1m", MIB)}`);
    add(
      "CPU of both sides, 4 KiB batches",
      ratio("tcp 4k x64", "wheel 4k x64", "cpuPerGB"),
      "x",
      { atMost: 0.1 },
      `${cpu("tcp 4k x64")} against ${cpu("wheel 4k x64")}`,
    );
    add("CPU of both sides, 1 MiB", ratio("tcp 1m", "wheel 1m", "cpuPerGB"), "x", { atMost: 0.9 }, `${cpu("tcp 1m")} against ${cpu("wheel 1m")}`);
    const servers = ["wheel metadata, Python", "wheel metadata, in its master"] as const;
    const better = middle(servers[0], "perSecond") > middle(servers[1], "perSecond") ? servers[0] : servers[1];
    add(
      "metadata server that survives kill -9, requests/s, to the faster of the field's two, which keep nothing",
      ratio("metadata", better, "perSecond"),
      "x",
      { atLeast: 1.3 },
      `${rate("metadata")} against ${servers.map((name) => `${rate(name)} (${name.slice("wheel metadata, ".length)})`).join(" and ")}`,
    );
    add(
      "submit and status, 4 KiB batches of 64, operations/s, to the Python engine's",
      ratio("submit 4k x64", "wheel submit 4k x64", "perSecond"),
      "x",
      undefined,
      `${rate("submit 4k x64")} against ${rate("wheel submit 4k x64")}`,
    );
  }
  add(
    "submit and status, 4 KiB batches of 64, to the synchronous call",
    ratio("submit 4k x64", "tcp 4k x64", "perSecond"),
    "x",
    { atLeast: 0.5 },
    `${rate("submit 4k x64")} against ${rate("tcp 4k x64")}`,
  );
  for (const timeoutMs of TIMEOUTS_MS) {
    const took = (samples.get(`timeout ${timeoutMs}`) ?? []).map(({ p50 }) => p50 * 1000);
    const note = `longest of ${took.length}; median ${median(took).toFixed(1)} ms`;
    add(`a request to a peer that stands still, given ${timeoutMs} ms, fails after`, Math.max(...took), "ms", { atMost: timeoutMs * 1.1 + 20 }, note);
  }
  add("tcp 1 MiB, to raw acknowledged sockets", ratio("tcp 1m", "raw tcp 1m", "perSecond"), "x", { atLeast: 0.9 }, `raw ${gb("raw tcp 1m", MIB)}`);
  add("shm 1 MiB, to memcpy", ratio("shm 1m", "memcpy 1m", "perSecond"), "x", { atLeast: 0.9 }, `${gb("shm 1m", MIB)} against ${gb("memcpy 1m", MIB)}`);
  add("shm 4 KiB batches of 64", middle("shm 4k x64", "perSecond") / 1e6, "M/s", { atLeast: 1 }, gb("shm 4k x64", KIB4));
  if (samples.has("nixl 1m")) {
    add(
      "shm 1 MiB, to NIXL's (UCX on one host)",
      ratio("shm 1m", "nixl 1m", "perSecond"),
      "x",
      undefined,
      `${gb("shm 1m", MIB)} against ${gb("nixl 1m", MIB)}`,
    );
    const pair = `${rate("shm 4k x64")} against ${rate("nixl 4k x64")}`;
    add("shm 4 KiB batches of 64, to NIXL's", ratio("shm 4k x64", "nixl 4k x64", "perSecond"), "x", undefined, pair);
  }
  add("process_vm 1 MiB, to the raw call", ratio("process_vm 1m", "raw process_vm 1m", "perSecond"), "x", { atLeast: 0.85 }, gb("process_vm 1m", MIB));
  add("process_vm 4 KiB, to the raw call", ratio("process_vm 4k", "raw process_vm 4k", "perSecond"), "x", { atLeast: 0.7 }, rate("process_vm 4k"));
  add("Promise over sync, tcp 4 KiB p50", (middle("promise 4k", "p50") - middle("tcp 4k", "p50")) * 1e6, "us", { atMost: 12 }, us("promise 4k"));
  add(
    "file reads of 4 KiB at depth 32, to raw io_uring",
    ratio("file", "raw ring", "perSecond"),
    "x",
    { atLeast: 0.9 },
    `${rate("file")} against ${rate("raw ring")}`,
  );
  const worst = Math.max(...(samples.get("heal") ?? []).map(({ p50 }) => p50));
  add("peer started again under its name: until it is reached, longest", worst, "s", { atMost: 1 }, `median ${(middle("heal", "p50") * 1000).toFixed(1)} ms`);
  return list;
}

try {
  await transfers();
  await timeouts();
  await files();
  await measureMetadata(ROUNDS, SECONDS * 2, withWheel, keep);
  await healing();
  if (!withWheel) process.stdout.write("the Python engine is missing here, so nothing is compared with it; ./svc setup installs it\n");
  report("transfer", rows(), Object.fromEntries(samples));
} finally {
  rmSync(folder, { recursive: true, force: true });
}
