// Asks a publisher for batches it sent before, and reads both shapes of its answer.
import { setTimeout as delay } from "node:timers/promises";
import { sequenceFrame } from "@svc/contract/kv-event.ts";
import { Dealer } from "zeromq";
import { type Batch, readReplay } from "./frames.ts";
import { readEndpoint } from "./register-input.ts";
import { context, MAX_MESSAGE_BYTES } from "./zmq.ts";

/** A replay of more than this is no replay of a bounded buffer. */
const MAX_REPLAYED = 4_000_000;
/** Batches that wait to be read, as many as a publisher's ROUTER holds by default. */
const HIGH_WATER_MARK = 1000;

export class ReplayFailed extends Error {}

/** The buffered batches from this number on, in the publisher's order; ends at the publisher's end mark. */
export async function* replay(endpoint: string, from: number, timeoutMs: number, signal: AbortSignal): AsyncGenerator<Batch> {
  const { address, binds } = readEndpoint(endpoint, "replay_endpoint");
  const socket = new Dealer({
    context,
    linger: 0,
    receiveHighWaterMark: HIGH_WATER_MARK,
    maxMessageSize: MAX_MESSAGE_BYTES,
    receiveTimeout: timeoutMs,
    sendTimeout: timeoutMs,
  });
  const stop = () => socket.close();
  signal.addEventListener("abort", stop);
  try {
    if (binds) await bindWithin(socket, address, timeoutMs);
    else socket.connect(address);
    // The empty frame is what a REQ socket would put in front; without it engines do not see a request.
    await socket.send(["", sequenceFrame(BigInt(from))]);
    for (let received = 0; received < MAX_REPLAYED; received++) {
      const message = readReplay(await socket.receive());
      if (message === "end") return;
      if (message === undefined) throw new ReplayFailed(`${endpoint} answered a replay request with something else`);
      yield message;
    }
    throw new ReplayFailed(`${endpoint} replayed more than ${MAX_REPLAYED} batches`);
  } catch (error) {
    if (error instanceof ReplayFailed) throw error;
    throw new ReplayFailed(`${endpoint} did not answer a replay request within ${timeoutMs} ms: ${(error as Error).message}`);
  } finally {
    signal.removeEventListener("abort", stop);
    if (!socket.closed) socket.close();
  }
}

/** The former socket on this address may still be going away. */
async function bindWithin(socket: Dealer, address: string, timeoutMs: number): Promise<void> {
  const until = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await socket.bind(address);
    } catch (error) {
      if (performance.now() > until) throw error;
      await delay(50);
    }
  }
}
