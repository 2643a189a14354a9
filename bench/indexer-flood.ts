// Publishers that send new blocks as fast as they can, in a separate process; prints their endpoints as one line of JSON.
import { setImmediate as turn } from "node:timers/promises";
import { sequenceFrame } from "@svc/contract/kv-event.ts";
import { Packr } from "msgpackr";
import { Publisher } from "zeromq";

const BLOCKS = 64;
const BLOCK_SIZE = 16;
const BATCHES = 2000;
const packr = new Packr({ useRecords: false });
const count = Number(process.argv[2]);

// The batches are created in advance and resent with new numbers, so that the sender is not the bottleneck.
const batches = Array.from({ length: BATCHES }, (_, batch) => {
  const names = Array.from({ length: BLOCKS }, (_, i) => BigInt(batch + 1) * 1_000_003n * 2n ** 20n + BigInt(i));
  const tokens = Array.from({ length: BLOCKS * BLOCK_SIZE }, (_, i) => (batch * 31 + i * 17) % 150_000);
  const event = { type: "BlockStored", block_hashes: names, parent_block_hash: null, token_ids: tokens, block_size: BLOCK_SIZE, lora_id: null, medium: "GPU" };
  return packr.pack([Date.now() / 1000, [event], 0]);
});
const publishers = [];
for (let n = 0; n < count; n++) {
  const socket = new Publisher({ linger: 0, sendHighWaterMark: 10_000 });
  await socket.bind("tcp://127.0.0.1:*");
  publishers.push(socket);
}
process.stdout.write(`${JSON.stringify(publishers.map(({ lastEndpoint }) => lastEndpoint))}\n`);
for (let sequence = 0n; ; sequence++) {
  for (const socket of publishers) await socket.send(["", sequenceFrame(sequence), batches[Number(sequence) % BATCHES] as Buffer]);
  await turn();
}
