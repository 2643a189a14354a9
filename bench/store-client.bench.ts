// Our store client compared with Mooncake's, each with its own master and holder, interleaved; and puts while a holder is killed.
import { setTimeout as sleep } from "node:timers/promises";
import type { StoreClient } from "../packages/store/src/client/store-client.ts";
import { type ClientProcess, openClient, startClient } from "../packages/store/test/client.ts";
import { type Holder, MIB, startHolder } from "../packages/store/test/holder.ts";
import { startMaster, startMooncakeMaster } from "../packages/store/test/master.ts";
import { median, type Row, report } from "./report.ts";

const ROUNDS = Number(process.env["SVC_BENCH_ROUNDS"] ?? 5);
/** Removed objects keep their memory until their readers' leases end, so the segment has space for several rounds. */
const SEGMENT_BYTES = 3072 * MIB;
const AREA_BYTES = 8 * MIB;
const PACE_MS = 5;
const PACED_SECONDS = 6;

type Measured = { readonly perSecond: number; readonly p50: number };
type Kind = "put" | "get";
type Step = { readonly what: string; readonly length: number; readonly batch: number; readonly count: number };

const steps: readonly Step[] = [
  { what: "4 KiB", length: 4096, batch: 1, count: 3000 },
  { what: "batches of 64 x 64 KiB", length: 65_536, batch: 64, count: 20 },
  { what: "1 MiB", length: MIB, batch: 1, count: 120 },
];

function timed(count: number, once: (i: number) => boolean): Measured {
  const times: number[] = [];
  const begun = performance.now();
  for (let i = 0; i < count; i++) {
    const at = performance.now();
    if (!once(i)) throw new Error(`call ${i} of ${count} did not do what it should`);
    times.push(performance.now() - at);
  }
  return { perSecond: (count * 1000) / (performance.now() - begun), p50: median(times) * 1000 };
}

/** One of our clients, with memory that is registered and touched once. */
class Ours {
  readonly client: StoreClient;
  readonly #area: Uint8Array;

  private constructor(client: StoreClient, area: Uint8Array) {
    this.client = client;
    this.#area = area;
  }

  static async open(rpcPort: number, sharesMemory: boolean): Promise<Ours> {
    const client = await openClient({ rpcPort }, { sharesMemory });
    const area = new Uint8Array(AREA_BYTES).fill(1);
    await client.registerBuffer(area);
    return new Ours(client, area);
  }

  run(kind: Kind, prefix: string, { length, batch, count }: Step): Measured {
    const pieces = Array.from({ length: batch }, (_, at) => this.#area.subarray(at * length, (at + 1) * length));
    const piece = pieces[0] as Uint8Array;
    return timed(count, (i) => {
      if (batch === 1) return kind === "put" ? this.client.putSync(`${prefix}-${i}-0`, piece) : this.client.getIntoSync(`${prefix}-${i}-0`, piece) === length;
      if (kind === "put") return this.client.putBatchSync(pieces.map((value, at) => ({ key: `${prefix}-${i}-${at}`, value }))).every((each) => each === true);
      return this.client.getIntoBatchSync(pieces.map((into, at) => ({ key: `${prefix}-${i}-${at}`, into }))).every((each) => each === length);
    });
  }

  async promised(kind: Kind, prefix: string, { length, count }: Step): Promise<Measured> {
    const piece = this.#area.subarray(0, length);
    const begun = performance.now();
    for (let i = 0; i < count; i++) {
      const key = `${prefix}-${i}-0`;
      if (kind === "put" ? !(await this.client.put(key, piece)) : (await this.client.getInto(key, piece)) !== length) throw new Error(`${key}: ${kind} failed`);
    }
    const tookMs = performance.now() - begun;
    return { perSecond: (count * 1000) / tookMs, p50: (tookMs * 1000) / count };
  }
}

async function theirs(field: Holder, kind: Kind, prefix: string, step: Step): Promise<Measured> {
  const { wrong, ...measured } = await field.ask<Measured & { wrong: number }>({ ...step, op: "measured", what: kind, buffer: "area", prefix });
  if (wrong > 0) throw new Error(`Mooncake's client: ${wrong} of ${step.count} calls failed`);
  return measured;
}

const samples = new Map<string, Measured[]>();
const keep = (what: string, measured: Measured) => void samples.set(what, [...(samples.get(what) ?? []), measured]);

async function throughput(): Promise<void> {
  await using fieldMaster = await startMooncakeMaster();
  await using _fieldHolder = await startHolder({ master: fieldMaster.rpcPort, segmentBytes: SEGMENT_BYTES });
  await using field = await startHolder({ master: fieldMaster.rpcPort, segmentBytes: 0, bufferBytes: 64 * MIB });
  await field.ask({ op: "allocate", buffer: "area", length: AREA_BYTES });
  await using master = await startMaster();
  await using _holder = await startClient(master, { segmentBytes: SEGMENT_BYTES });
  const [tcp, shm] = [await Ours.open(master.rpcPort, false), await Ours.open(master.rpcPort, true)];
  // Each process first touches the mapped memory, because the first write to a page costs kernel time.
  const most = { what: "1 MiB", length: MIB, batch: 1, count: Math.floor((SEGMENT_BYTES / MIB) * 0.8) };
  for (const each of [tcp, shm]) {
    each.run("put", "touch", most);
    await each.client.removeAll(true);
  }
  await theirs(field, "put", "touch", most);
  await field.call("remove_all", true);
  for (let round = 0; round < ROUNDS; round++) {
    for (const step of steps) {
      const prefix = `r${round}-${step.length}`;
      const ways: (() => Promise<void>)[] = [
        async () => {
          for (const kind of ["put", "get"] as const) keep(`theirs ${kind} ${step.what}`, await theirs(field, kind, prefix, step));
        },
        async () => {
          keep(`tcp put ${step.what}`, tcp.run("put", prefix, step));
          keep(`tcp get cold ${step.what}`, tcp.run("get", prefix, step));
          keep(`tcp get known ${step.what}`, tcp.run("get", prefix, step));
          await tcp.client.removeAll(true);
        },
        async () => {
          keep(`shm put ${step.what}`, shm.run("put", `s${prefix}`, step));
          keep(`shm get cold ${step.what}`, shm.run("get", `s${prefix}`, step));
          keep(`shm get known ${step.what}`, shm.run("get", `s${prefix}`, step));
          await shm.client.removeAll(true);
          if (step.batch > 1) return;
          keep(`promise put ${step.what}`, await tcp.promised("put", `p${prefix}`, step));
          keep(`promise get cold ${step.what}`, await tcp.promised("get", `p${prefix}`, step));
          await tcp.client.removeAll(true);
        },
      ];
      for (const way of round % 2 === 0 ? ways : ways.reverse()) await way();
    }
    await field.call("remove_all", true);
  }
  await tcp.client.close();
  await shm.client.close();
}

type Paced = { longestMs: number; failed: number; count: number };

/** Kills one of two holders after a second. */
async function killedHolder(holders: readonly [{ kill(): Promise<void> }, unknown], puts: Promise<Paced>): Promise<Paced> {
  await sleep(1000);
  await holders[0].kill();
  return puts;
}

async function paced(client: StoreClient): Promise<Paced> {
  const value = Buffer.alloc(4096, 7);
  const out: Paced = { longestMs: 0, failed: 0, count: 0 };
  for (const end = performance.now() + PACED_SECONDS * 1000; performance.now() < end; out.count++) {
    const at = performance.now();
    await client.put(`paced-${out.count}`, value).catch(() => out.failed++);
    out.longestMs = Math.max(out.longestMs, performance.now() - at);
    await sleep(PACE_MS);
  }
  return out;
}

async function stalls(rows: Row[]): Promise<void> {
  {
    await using master = await startMaster();
    const holders: [ClientProcess, ClientProcess] = [
      await startClient(master, { segmentBytes: 64 * MIB }),
      await startClient(master, { segmentBytes: 64 * MIB }),
    ];
    await using client = await openClient(master);
    const own = await killedHolder(holders, paced(client));
    await holders[1].kill();
    rows.push({ what: "one of two holders killed: longest put", value: own.longestMs, unit: "ms", goal: { atMost: 300 }, note: `${own.count} puts` });
    rows.push({ what: "one of two holders killed: puts that failed", value: own.failed, unit: "", goal: { atMost: 0 } });
  }
  await using fieldMaster = await startMooncakeMaster();
  const holders: [Holder, Holder] = [await startHolder({ master: fieldMaster.rpcPort }), await startHolder({ master: fieldMaster.rpcPort })];
  await using field = await startHolder({ master: fieldMaster.rpcPort, segmentBytes: 0 });
  const found = await killedHolder(holders, field.ask<Paced>({ op: "paced", prefix: "paced", length: 4096, seconds: PACED_SECONDS, everyMs: PACE_MS }));
  await holders[1].kill();
  rows.push({ what: "theirs, the same: longest put", value: found.longestMs, unit: "ms", note: `${found.failed} of ${found.count} puts failed` });
}

const rows: Row[] = [];
await throughput();
const of = (what: string) => median((samples.get(what) ?? []).map(({ perSecond }) => perSecond));
const p50Of = (what: string) => median((samples.get(what) ?? []).map(({ p50 }) => p50));
function row(ours: string, peer: string, goal?: number): void {
  const ratio = of(ours) / of(peer);
  // Under other load the rates depend on who was disturbed less; medians of single calls are hardly affected.
  const [call, theirCall] = [p50Of(ours), p50Of(peer)];
  const calls = `medians of a call ${call.toFixed(0)} us against ${theirCall.toFixed(0)}: ${(theirCall / call).toFixed(2)} x`;
  const note = `${Math.round(of(ours))}/s against ${Math.round(of(peer))}/s; ${calls}`;
  rows.push({ what: ours, value: ratio, unit: "x", note, ...(goal === undefined ? {} : { goal: { atLeast: goal } }) });
}
const goals: Readonly<Record<string, number>> = {
  "tcp put 4 KiB": 3,
  "tcp get cold 4 KiB": 2.5,
  "tcp get known 4 KiB": 8,
  "tcp put batches of 64 x 64 KiB": 3,
  "tcp get cold batches of 64 x 64 KiB": 3,
  "tcp put 1 MiB": 2,
  "tcp get cold 1 MiB": 2,
  "shm get known 4 KiB": 15,
  "shm get known 1 MiB": 5,
};
for (const what of [...samples.keys()].filter((name) => !name.startsWith("theirs")).sort()) {
  const [, kind] = what.split(" ");
  row(what, `theirs ${kind} ${what.replace(/^\w+ \w+ (cold |known )?/, "")}`, goals[what]);
}
await stalls(rows);
report("store-client", rows, Object.fromEntries(samples));
process.exit(0);
