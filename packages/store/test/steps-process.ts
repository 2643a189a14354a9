// A client that stops in the middle of operations, each at a step of its own, and continues on command, for tests that kill a process meanwhile.
import { createInterface } from "node:readline";
import { alloc } from "@svc/transfer/memory.ts";
import { nativeClient } from "../src/client/native.ts";
import { Session } from "../src/client/session/session.ts";
import { openEngine } from "../src/client/session/transfer-engine.ts";
import type { ArgsOf, OperationName } from "../src/rpc/operations.ts";
import type { Descriptor } from "../src/rpc/shapes.ts";
import { plain } from "./calls.ts";

export type Step = "begun" | "written" | "ended";
export type Row = { readonly op: "put" | "extent" | "upsert" | "replace" | "copy" | "move" | "remove"; readonly key: string; readonly stopAt: Step };
/** The last answer that the caller got; empty if none came. */
export type Said = { readonly isDone?: boolean; readonly code?: number };
export type StepsSetup = {
  readonly master: string;
  readonly rows: readonly Row[];
  readonly source: string;
  readonly target: string;
  readonly sizeBytes: number;
};

const setup = JSON.parse(process.argv[2] ?? "{}") as StepsSetup;
const engine = await openEngine({ localHostname: "127.0.0.1", metadata: "P2PHANDSHAKE", protocol: "tcp" });
const session = await Session.open({ master: setup.master, engine });
const { clientID } = session;
const config = { ...plain, preferredSegment: setup.source };

class Refused extends Error {
  readonly code: number;
  constructor(code: number) {
    super(`refused: ${code}`);
    this.code = code;
  }
}

async function ask<N extends OperationName>(name: N, ...args: ArgsOf<N>): Promise<unknown> {
  const answer = (await session.call(name, ...args)) as unknown;
  const outcome = (Array.isArray(answer) ? answer[0] : answer) as { ok: boolean; code: number; value: unknown };
  if (!outcome.ok) throw new Refused(outcome.code);
  return outcome.value;
}

const memory = new Map<string, { bytes: Uint8Array; base: bigint }>();
async function bytesFor(key: string, sizeBytes: number): Promise<bigint> {
  const bytes = alloc(sizeBytes);
  Buffer.from(bytes.buffer, bytes.byteOffset, sizeBytes).fill(`new ${key};`);
  const base = await engine.registerLocalMemory(bytes, { remoteAccessible: false });
  memory.set(key, { bytes, base });
  return base;
}

const checksum = (base: bigint, sizeBytes: number) => nativeClient().checksum(BigUint64Array.of(base, 0n, BigInt(sizeBytes)), 0, 1);

async function move(opcode: "READ" | "WRITE", key: string, endpoint: string, remote: bigint, sizeBytes: number): Promise<void> {
  const local = (memory.get(key) as { bytes: Uint8Array }).bytes.subarray(0, sizeBytes);
  await engine.transfer(opcode, await engine.openSegment(endpoint), [{ local, remote }]);
}

function placeOf({ place }: Descriptor): { endpoint: string; address: bigint; sizeBytes: number } {
  if (place.type !== "memory") throw new Error(`expected memory, got ${place.type}`);
  return { endpoint: place.buffer.endpoint, address: place.buffer.address, sizeBytes: Number(place.buffer.sizeBytes) };
}

async function* write(key: string, isUpsert: boolean, sizeBytes: number): AsyncGenerator<Step> {
  const base = await bytesFor(key, sizeBytes);
  const replicas = (await ask(isUpsert ? "UpsertStart" : "PutStart", clientID, key, BigInt(sizeBytes), config, "")) as Descriptor[];
  yield "begun";
  for (const replica of replicas) {
    const { endpoint, address } = placeOf(replica);
    await move("WRITE", key, endpoint, address, sizeBytes);
  }
  yield "written";
  await ask(isUpsert ? "UpsertEnd" : "PutEnd", clientID, { key, checksum: checksum(base, sizeBytes) }, 4, "");
}

async function* writeExtent(key: string): AsyncGenerator<Step> {
  const base = await bytesFor(key, setup.sizeBytes);
  type Lease = { extents: { id: bigint; ranges: { address: bigint; endpoint: string }[] }[] };
  const { extents } = (await ask("LeaseExtents", clientID, BigInt(setup.sizeBytes), 1n, config, [], "")) as Lease;
  const [extent] = extents;
  if (extent === undefined) throw new Refused(0);
  yield "begun";
  for (const { endpoint, address } of extent.ranges) await move("WRITE", key, endpoint, address, setup.sizeBytes);
  yield "written";
  await ask("CommitPuts", clientID, [{ extent: extent.id, key, checksum: checksum(base, setup.sizeBytes) }], config, "", false, "");
}

async function* copy(key: string, isMove: boolean): AsyncGenerator<Step> {
  await bytesFor(key, setup.sizeBytes);
  const { source, target } = setup;
  type Begun = { source: Descriptor; targets?: Descriptor[]; target?: Descriptor };
  const begun = (await (isMove ? ask("MoveStart", clientID, key, "", source, target) : ask("CopyStart", clientID, key, "", source, [target]))) as Begun;
  yield "begun";
  try {
    const from = placeOf(begun.source);
    await move("READ", key, from.endpoint, from.address, from.sizeBytes);
    for (const each of [...(begun.targets ?? []), ...(begun.target === undefined ? [] : [begun.target])]) {
      const to = placeOf(each);
      await move("WRITE", key, to.endpoint, to.address, to.sizeBytes);
    }
  } catch (error) {
    await ask(isMove ? "MoveRevoke" : "CopyRevoke", clientID, key, "");
    throw error;
  }
  yield "written";
  await ask(isMove ? "MoveEnd" : "CopyEnd", clientID, key, "");
}

async function* run({ op, key }: Row): AsyncGenerator<Step> {
  if (op === "put") yield* write(key, false, setup.sizeBytes);
  else if (op === "extent") yield* writeExtent(key);
  else if (op === "upsert") yield* write(key, true, setup.sizeBytes);
  else if (op === "replace") yield* write(key, true, setup.sizeBytes * 2);
  else if (op === "remove") await ask("Remove", key, true, "");
  else yield* copy(key, op === "move");
  yield "ended";
}

const saidOf = (error: unknown): Said => (error instanceof Refused ? { isDone: false, code: error.code } : {});
const say = (value: unknown) => process.stdout.write(`${JSON.stringify(value)}\n`);

const halted: { row: Row; flow: AsyncGenerator<Step> }[] = [];
const said: Record<string, Said> = {};
for (const row of setup.rows) {
  const flow = run(row);
  try {
    for (let at = await flow.next(); !at.done && at.value !== row.stopAt; at = await flow.next());
    if (row.stopAt === "ended") said[row.key] = { isDone: true };
    else halted.push({ row, flow });
  } catch (error) {
    said[row.key] = saidOf(error);
  }
}
say(said);
for await (const _line of createInterface({ input: process.stdin })) {
  for (const { row, flow } of halted) {
    try {
      while (!(await flow.next()).done);
      said[row.key] = { isDone: true };
    } catch (error) {
      said[row.key] = saidOf(error);
    }
  }
  say(said);
}
process.exit(0);
