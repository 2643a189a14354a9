// Runs random histories of a publisher over real sockets with the real index: a row that is reported complete has exactly the publisher's
// blocks.
import assert from "node:assert/strict";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { pino } from "pino";
import { Generations } from "../src/index/generations.ts";
import { Intake } from "../src/index/intake.ts";
import { openIndex } from "../src/index/native.ts";
import { PendingBudget } from "../src/index/order.ts";
import { Reclaimer } from "../src/index/reclaim.ts";
import { WriteBarrier } from "../src/index/write-barrier.ts";
import { readRegistration } from "../src/registrations/register-input.ts";
import { Subscription } from "../src/stream/subscription.ts";
import { type Remembered, rememberedOf } from "../src/stream/subscription-options.ts";
import { Listeners } from "../src/zmtp/listeners.ts";
import { type Key, ModelPublisher, seeded } from "./stream-publisher.ts";

const KEYS = 12;
const ROUNDS = 3;
const STEPS = 24;
/** The number of histories of each kind; SVC_STREAM_HISTORIES and SVC_STREAM_SEED run more, or repeat one. */
const HISTORIES = Number(process.env["SVC_STREAM_HISTORIES"] ?? 32);
const FIRST_SEED = Number(process.env["SVC_STREAM_SEED"] ?? Math.floor(Math.random() * 1e9));
const AT_ONCE = 20;
/** Settling usually takes a second or two. */
const SETTLED_MS = 60_000;
/** The number of equal observations in a row, 25 ms apart. */
const LOOKS = 12;

type Chosen = { readonly budgetBytes: number; readonly quietCheckMs: number };

const hasher = openIndex(16 * 1024 * 1024, 1337n);
const keys: Key[] = Array.from({ length: KEYS }, (_, slot) => {
  const tokens = Array.from({ length: 4 }, (_, at) => slot * 10 + at);
  return { hash: hasher.sequences(Uint32Array.from(tokens), 4)[0] as bigint, tokens };
});

type Saved = { readonly path: string; readonly id: number; readonly remembered: Remembered };

/** An indexer with one registration; only its last snapshot survives it. */
class ModelIndexer {
  readonly index = openIndex(16 * 1024 * 1024, 1337n);
  readonly writeBarrier = new WriteBarrier();
  readonly subscription: Subscription;

  constructor(kind: "engine" | "store", publisher: ModelPublisher, { budgetBytes, quietCheckMs }: Chosen, saved?: Saved) {
    const { index, writeBarrier } = this;
    const intake = new Intake(writeBarrier, new PendingBudget(budgetBytes));
    if (saved !== undefined) index.load(saved.path);
    const reclaimer = new Reclaimer(index, intake);
    const names = { instance: "e", tenant: "default", model: "m", lora: "", salt: "", key: "e", blockSize: 4, rank: 0 };
    const description = { ...names, store: kind === "store" ? 1 : 0 } as const;
    const id = saved?.id ?? index.subscribe(description);
    const registration = readRegistration(
      {
        endpoint: publisher.endpoint,
        replay_endpoint: publisher.replayEndpoint,
        type: kind === "store" ? "svc" : "vLLM",
        modelname: "m",
        instance_id: "e",
        block_size: 4,
        dp_rank: 0,
      },
      ["svc"],
    );
    const note = { write: (line: string) => void publisher.story.push(`  ${(JSON.parse(line) as { why?: string }).why ?? line.trim()}`) };
    this.subscription = new Subscription({
      index,
      reclaimer,
      intake,
      generations: new Generations({ index, reclaimer, description }, id, saved?.remembered.former),
      registration,
      kind,
      listeners: new Listeners(),
      log: pino({ base: null, timestamp: false }, note),
      replayTimeoutMs: 150,
      reorderGraceMs: 20,
      quietCheckMs,
      uncertainMs: 600_000,
      remembered: saved?.remembered,
    });
  }

  save(path: string): Promise<Saved> {
    return this.writeBarrier.during(async () => {
      const remembered = JSON.parse(JSON.stringify(rememberedOf(this.subscription))) as Remembered;
      const { id } = this.subscription;
      await this.index.save(path, "");
      return { path, id, remembered };
    });
  }

  answered(): string {
    const query = { tenant: "default", model: "m", lora: "", salt: "", blockSize: 4, instance: "e" };
    const has = (hash: bigint) => JSON.parse(String(this.index.answer(query, BigUint64Array.of(hash)))).default.e.CPU > 0;
    return keys.flatMap(({ hash }, slot) => (has(hash) ? [slot] : [])).join(" ");
  }
}

async function history(kind: "engine" | "store", seed: number): Promise<number> {
  const below = seeded(seed);
  const folder = await mkdtemp(join(tmpdir(), "stream-"));
  const publisher = new ModelPublisher(kind, keys, folder, below);
  await publisher.open();
  // With a small budget hardly any batch can wait; without quiet checks only the next batch reveals a loss.
  const chosen: Chosen = { budgetBytes: below(3) === 0 ? 1500 : 1 << 20, quietCheckMs: below(2) === 0 ? 200 : 0 };
  let indexer = new ModelIndexer(kind, publisher, chosen);
  let saved: Saved | undefined;
  let snapshots = 0;
  const held = () => [...publisher.held].sort((a, b) => a - b).join(" ");
  const save = async () => {
    const before = saved?.path;
    saved = await indexer.save(join(folder, `snapshot-${snapshots++}`));
    publisher.story.push(`saved, next ${saved.remembered.next}`);
    if (before !== undefined) await rm(before);
  };

  /** A clean stop saves everything; after a kill there is an earlier snapshot, or none. */
  async function restart(): Promise<void> {
    const end = below(3);
    if (end === 0) await save();
    if (end === 1) saved = undefined;
    publisher.story.push(`the indexer starts again, ${saved === undefined ? "with nothing" : `next ${saved.remembered.next}`}`);
    await indexer.subscription.close();
    indexer = new ModelIndexer(kind, publisher, chosen, saved);
    await indexer.subscription.start();
  }

  async function connected(): Promise<void> {
    for (const until = performance.now() + SETTLED_MS; !indexer.subscription.connected; await delay(5))
      assert.ok(performance.now() < until, `${kind}, seed ${seed}: not connected`);
  }

  /** Waits until the state stays the same for a while: first whether it is complete, and then whether it is right. */
  async function settle(): Promise<"complete" | "incomplete"> {
    const until = performance.now() + SETTLED_MS;
    let found: "complete" | "incomplete" | "wrong" | "never the same" | undefined;
    let replayed = -1;
    for (let looks = 0; looks < LOOKS; looks++) {
      if (performance.now() > until) {
        if (found !== "wrong") found = "never the same";
        break;
      }
      await delay(25);
      const { complete } = indexer.subscription.freshness();
      const isRight = indexer.answered() === held();
      const now = complete ? (isRight ? "complete" : "wrong") : "incomplete";
      // Quiet checks happen between the observations: they must not read anything again.
      const { replayedBatches } = indexer.subscription.counts;
      if (now !== found || now === "wrong" || indexer.subscription.order.gap || replayedBatches !== replayed) looks = -1;
      found = now;
      replayed = replayedBatches;
    }
    assert.ok(
      found === "complete" || found === "incomplete",
      `${kind}, seed ${seed}, ${JSON.stringify(chosen)}: ${found}, held [${held()}], answered [${indexer.answered()}], next ${indexer.subscription.order.next}\n${publisher.story.slice(-200).join("\n")}`,
    );
    return found;
  }

  let complete = 0;
  try {
    if (below(2) === 0) for (let n = below(30); n > 0; n--) publisher.publish();
    await indexer.subscription.start();
    for (let round = 0; round < ROUNDS; round++) {
      publisher.calm = false;
      for (let step = 0; step < STEPS; step++) {
        const chance = below(100);
        if (chance < 50) for (let n = 1 + below(4); n > 0; n--) publisher.publish();
        if (chance < 75) await publisher.deliver(1 + below(6));
        else if (chance < 79) await publisher.restart();
        else if (chance < 83) void indexer.writeBarrier.during(() => delay(5 + below(30)));
        else if (chance < 86) await save();
        else if (chance < 89) await restart();
        else await delay(1 + below(12));
      }
      publisher.calm = true;
      await publisher.deliver(Number.POSITIVE_INFINITY);
      // The last batch may have been lost, which a quiet check finds; or another one follows.
      await connected();
      if (below(2) === 0) publisher.publish();
      await publisher.deliver(Number.POSITIVE_INFINITY);
      if (chosen.quietCheckMs === 0) {
        // The last batch of a former process may be read after all that the present one has sent so far.
        await delay(50);
        publisher.publish();
        await publisher.deliver(Number.POSITIVE_INFINITY);
      }
      publisher.story.push("calm");
      if ((await settle()) === "complete") complete++;
    }
  } finally {
    await indexer.subscription.close();
    await publisher.close();
    await rm(folder, { recursive: true, force: true });
  }
  return complete;
}

for (const kind of ["engine", "store"] as const)
  void test(`after any loss, delay or restart, a complete row has exactly the blocks of the ${kind}`, async (context) => {
    const seeds = Array.from({ length: HISTORIES }, (_, at) => FIRST_SEED + at);
    let complete = 0;
    const one = async (): Promise<void> => {
      for (let seed = seeds.shift(); seed !== undefined; seed = seeds.shift()) {
        const rounds = await history(kind, seed);
        complete += rounds;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, one));
    context.diagnostic(`from seed ${FIRST_SEED}: ${complete} of ${HISTORIES * ROUNDS} rounds ended complete`);
    assert.ok(complete > 0);
  });
