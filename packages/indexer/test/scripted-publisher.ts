// A publisher over real sockets whose replays the test chooses, batch by batch.
import { REPLAY_END, sequenceFrame } from "@svc/contract/kv-event.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { Packr } from "msgpackr";
import { Publisher, Router } from "zeromq";

const packr = new Packr({ useRecords: false });
export const stored = (id: number, hash: number) => ({
  event_id: id,
  event_type: "stored",
  medium: "cpu",
  seq_hashes: [hash],
  base_block_idx: 0,
  tenant_id: "default",
});
export const removed = (id: number, hash: number) => ({ event_id: id, event_type: "removed", medium: "cpu", seq_hashes: [hash], tenant_id: "default" });
export type Batch = readonly [number, Buffer];
export const batch = (sequence: number, ...events: object[]): Batch => [sequence, packr.pack([Date.now(), events, 0])];

/** Batches and an end mark; those of `breaksOff` have no end mark, and "silent" means no answer. */
export type Answer = readonly Batch[] | { readonly breaksOff: readonly Batch[] } | "silent";

/** `asked` counts replays from 1. */
export async function startScripted(answer: (from: number, asked: number) => Promise<Answer>) {
  const [live = 0, replay = 0] = await freePorts(2);
  const [publisher, router] = [new Publisher({ linger: 0, sendHighWaterMark: 0 }), new Router({ linger: 0, sendHighWaterMark: 0 })];
  await publisher.bind(`tcp://127.0.0.1:${live}`);
  await router.bind(`tcp://127.0.0.1:${replay}`);
  const serving = (async () => {
    let asked = 0;
    for await (const [identity = Buffer.alloc(0), , start = Buffer.alloc(8)] of router) {
      const found = await answer(Number(start.readBigUInt64BE()), ++asked);
      if (found === "silent") continue;
      for (const [number, payload] of "breaksOff" in found ? found.breaksOff : found) await router.send([identity, "", sequenceFrame(BigInt(number)), payload]);
      if (!("breaksOff" in found)) await router.send([identity, "", sequenceFrame(REPLAY_END), ""]);
    }
  })().catch((error: Error) => {
    // An answer may be under way when the test ends.
    if (!router.closed) throw error;
  });
  return {
    registration: {
      endpoint: `tcp://127.0.0.1:${live}`,
      replay_endpoint: `tcp://127.0.0.1:${replay}`,
      type: "svc",
      modelname: "m",
      instance_id: "pool",
      block_size: 4,
      dp_rank: 0,
    },
    async publish(...batches: readonly Batch[]) {
      for (const [sequence, payload] of batches) await publisher.send(["", sequenceFrame(BigInt(sequence)), payload]);
    },
    async [Symbol.asyncDispose]() {
      publisher.close();
      router.close();
      await serving;
    },
  };
}
