// Publishes the master's KV events by ZMQ: batches from the log, and replays for subscribers that missed some.
import { fail } from "@svc/contract/failures.ts";
import { REPLAY_END, sequenceFrame } from "@svc/contract/kv-event.ts";
import type { Log } from "@svc/kit/log.ts";
import { Publisher as PublishSocket, Router } from "zeromq";
import type { NativeMaster } from "./native.ts";
import type { MasterSettings } from "./settings.ts";

/** Bounds the batches of a replay that wait for its reader; beyond it the replay waits. */
const REPLAY_HIGH_WATER_MARK = 256;
/** A replay ends for a reader that accepts nothing for this long, or takes longer in total. */
const REPLAY_SEND_MS = 5_000;
const REPLAY_MS = 120_000;
/** The batches of a dump between two pauses for the event loop. */
const DUMP_SLICE = 64;

export type Publisher = {
  /** Called when there are batches to publish. */
  publish(): void;
  close(): Promise<void>;
};

export type PublisherOptions = {
  readonly native: NativeMaster;
  readonly settings: MasterSettings;
  readonly log: Log;
  whenDurable(): Promise<void>;
  /** A standby answers no replay, since subscribers that ask it ask the leader as well. */
  isServing(): boolean;
};

/** @throws SETTING_INVALID where an endpoint cannot be bound. */
export async function openPublisher({ native, settings, log, whenDurable, isServing }: PublisherOptions): Promise<Publisher> {
  const socket = new PublishSocket({ linger: 0, sendHighWaterMark: settings.kv_events_send_queue_batches });
  // With `mandatory`, a message for a slow reader waits instead of being dropped.
  const router = new Router({ linger: 0, mandatory: true, sendHighWaterMark: REPLAY_HIGH_WATER_MARK, sendTimeout: REPLAY_SEND_MS });
  await bind(socket, "kv_events_bind_endpoint", settings.kv_events_bind_endpoint);
  const replays = settings.kv_events_replay_endpoint !== "";
  if (replays) await bind(router, "kv_events_replay_endpoint", settings.kv_events_replay_endpoint);
  log.info({ endpoint: socket.lastEndpoint, replay: replays ? router.lastEndpoint : null }, "KV events are published");
  let publishing: Promise<void> = Promise.resolve();
  let ended = false;

  async function drain(): Promise<void> {
    while (!ended) {
      const batches = native.takeBatches();
      if (batches.length === 0) return;
      for (const { number, payload } of batches) await socket.send(["", sequenceFrame(BigInt(number)), payload]);
    }
  }

  async function replay(identity: Buffer, from: number): Promise<void> {
    const until = performance.now() + REPLAY_MS;
    const send = async (number: number, payload: Buffer): Promise<void> => {
      if (performance.now() > until) throw new Error(`its replay took more than ${REPLAY_MS} ms`);
      await router.send([identity, "", sequenceFrame(BigInt(number)), payload]);
    };
    const { oldest } = native.batchRange();
    let at = from < oldest ? await dump(from, send) : from;
    const { next: end } = native.batchRange();
    while (at < end) {
      const batches = native.batchesFrom(at);
      if (batches.length === 0) break;
      for (const { number, payload } of batches) {
        await send(number, payload);
        at = number + 1;
      }
    }
    await router.send([identity, "", sequenceFrame(REPLAY_END), ""]);
  }

  /** Replays a dump of every key instead of batches that are no longer kept, numbered directly before the next batch. */
  async function dump(from: number, send: (number: number, payload: Buffer) => Promise<void>): Promise<number> {
    const { first, batches } = native.beginDump();
    const end = first + batches;
    for (let made = 0; made < batches; ) {
      const payloads = native.dumpSome(DUMP_SLICE);
      if (payloads.length === 0) break;
      await whenDurable();
      // If `from` lies within the dump's numbers, no lower number may be sent, so the last one may repeat.
      for (const payload of payloads) await send(first >= from ? first + made++ : Math.min(from + made++, end - 1), payload);
    }
    // The dump itself is not kept. A batch that is kept must follow it, or a reader
    // that resumes from its last number would be taken for another publisher's.
    native.endDump(end);
    await whenDurable();
    return end;
  }

  async function serve(): Promise<void> {
    for await (const [identity, ...rest] of router) {
      const start = rest[0]?.length === 0 ? rest[1] : rest[0];
      if (identity === undefined || start?.length !== 8 || !isServing()) continue;
      const from = start.readBigUInt64BE();
      // Replays run one at a time: a dump is large, and there are few indexers.
      await replay(identity, Number(from)).catch((error: NodeJS.ErrnoException) => {
        if (ended) return;
        // A reader that finds that it needs a full dump closes, and requests that instead.
        if (error.code === "EHOSTUNREACH") log.info({ from: Number(from) }, "the reader of a replay of KV events closed before its end");
        else log.warn({ reason: error.message }, "a replay of KV events was not read to its end");
      });
    }
  }

  if (replays)
    serve().catch((error: Error) => {
      if (!ended) log.error({ err: error }, "the replay socket of KV events failed");
    });
  return {
    publish() {
      publishing = publishing.then(drain).catch((error: Error) => {
        if (!ended) log.error({ err: error }, "publishing KV events failed");
      });
    },
    async close() {
      ended = true;
      socket.close();
      router.close();
      await publishing;
    },
  };
}

async function bind(socket: PublishSocket | Router, setting: string, endpoint: string): Promise<void> {
  await socket.bind(endpoint).catch((error: Error) => fail("SETTING_INVALID", `setting store.${setting}: ${endpoint}: ${error.message}`, { cause: error }));
}
