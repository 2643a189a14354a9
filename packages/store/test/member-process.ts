// A client's session in a process of its own: one JSON line per command, one JSON line per answer.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { asFailure } from "@svc/contract/failures.ts";
import { alloc, openShm, unlinkShm } from "@svc/transfer/memory.ts";
import { Session } from "../src/client/session/session.ts";
import type { SessionEvent } from "../src/client/session/session-options.ts";
import type { Task } from "../src/client/session/task-loop.ts";
import { openEngine } from "../src/client/session/transfer-engine.ts";

type Setup = { master: string; metadata?: string; callMs?: number; joinMs?: number; execute?: "well" | "badly"; engine?: Record<string, number> };

const setup = JSON.parse(process.argv[2] ?? "{}") as Setup;
const events: SessionEvent[] = [];
const tasks: Task[] = [];
const say = (value: unknown) => process.stdout.write(`${JSON.stringify(value, (_key, each) => (typeof each === "bigint" ? String(each) : each))}\n`);

async function execute(fetched: readonly Task[]): Promise<(Error | undefined)[]> {
  tasks.push(...fetched);
  return fetched.map(() => (setup.execute === "badly" ? new Error("the copy's source is unreadable") : undefined));
}

const engine = await openEngine({ localHostname: "127.0.0.1", metadata: setup.metadata ?? "P2PHANDSHAKE", protocol: "tcp", settings: setup.engine ?? {} });
const session = await Session.open({
  master: setup.master,
  engine,
  callMs: setup.callMs ?? 1000,
  pingMs: 200,
  ...(setup.joinMs === undefined ? {} : { joinMs: setup.joinMs }),
  ...(setup.execute === undefined ? {} : { execute }),
  onEvent: (event) => events.push(event),
}).catch((error) => {
  say({ error: asFailure(error).name, message: asFailure(error).message });
  process.exit(1);
});

/** Writes or reads a peer's memory until it is stopped; counts the transfers, and the refused ones. */
const storms = new Map<string, { done: number; failed: number; stop: boolean; ended: Promise<void> }>();
async function storm(name: string, segment: string, remote: bigint, sizeBytes: number, value: number): Promise<void> {
  const memory = alloc(sizeBytes).fill(value);
  await engine.registerLocalMemory(memory, { remoteAccessible: false });
  const target = await engine.openSegment(segment);
  const one = { done: 0, failed: 0, stop: false, ended: Promise.resolve() };
  storms.set(name, one);
  one.ended = (async () => {
    while (!one.stop) {
      await engine.transfer("WRITE", target, [{ local: memory, remote }]).then(
        () => one.done++,
        () => one.failed++,
      );
      if (one.failed > 0) await sleep(1);
    }
  })();
}

async function write(segment: string, remote: bigint, sizeBytes: number, value: number): Promise<void> {
  const memory = alloc(sizeBytes).fill(value);
  const start = await engine.registerLocalMemory(memory, { remoteAccessible: false });
  await engine.transfer("WRITE", await engine.openSegment(segment), [{ local: memory, remote }]).finally(() => engine.unregisterLocalMemory(start));
}

/** The shared memory objects that this process created. */
const objects = new Map<string, Uint8Array>();

type Command = { op: string; [name: string]: unknown };

async function run(command: Command): Promise<unknown> {
  const text = (name: string) => command[name] as string;
  const number = (name: string) => Number(command[name] ?? 0);
  const options = (command["options"] ?? {}) as object;
  switch (command.op) {
    case "mountNew":
      return (await session.mountNew(number("size"), options)).map(({ segment }) => segment);
    case "mountShared":
      return (await session.mountShared(text("name"), number("offset"), number("size"), options)).map(({ segment }) => segment);
    case "unmount":
      return session.unmount(text("id"), number("graceMs"));
    case "makeShared":
      objects.set(text("name"), openShm(text("name"), number("size"), true));
      return null;
    case "dropShared":
      return unlinkShm(text("name"));
    case "sharedBytes":
      return [...(objects.get(text("name")) ?? []).slice(number("at"), number("at") + number("count"))];
    case "write":
      return write(text("segment"), BigInt(text("remote")), number("size"), number("value"));
    case "fill":
      session.segments.get(text("id"))?.memory?.fill(number("value"));
      return null;
    case "bytes":
      return [...(session.segments.get(text("id"))?.memory ?? []).slice(number("at"), number("at") + number("count"))];
    case "storm":
      return storm(text("name"), text("segment"), BigInt(text("remote")), number("size"), number("value"));
    case "storms":
      return Object.fromEntries([...storms].map(([name, { done, failed }]) => [name, { done, failed }]));
    case "calm":
      for (const each of storms.values()) each.stop = true;
      await Promise.all([...storms.values()].map(({ ended }) => ended));
      return null;
    case "state":
      return {
        clientID: session.clientID,
        name: engine.getServerName(),
        isJoined: session.isJoined,
        segments: session.segments.all().map(({ segment, state }) => ({ id: segment.id, base: segment.base, sizeBytes: segment.sizeBytes, state: state.name })),
        /** The bytes of transfer memory that this process has mapped. */
        mappedBytes: mappedBytes(),
        events: events.map((event) => event.type),
        tasks,
      };
    case "close":
      return session.close();
    default:
      throw new Error(command.op);
  }
}

function mappedBytes(): number {
  const lines = readFileSync("/proc/self/maps", "utf8").split("\n");
  const sizes = lines.filter((line) => /memfd:svc-transfer|\/dev\/shm\//.test(line)).map((line) => /^(\w+)-(\w+)/.exec(line) ?? []);
  return sizes.reduce((total, [, from = "0", to = "0"]) => total + Number.parseInt(to, 16) - Number.parseInt(from, 16), 0);
}

say("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const { seq, ...command } = JSON.parse(line) as Command & { seq: number };
  // Answers are sent as they become available, so that a storm continues meanwhile.
  void run(command).then(
    (value) => say({ seq, value: value ?? null }),
    (error) => say({ seq, error: asFailure(error).name, message: asFailure(error).message }),
  );
}
process.exit(0);
