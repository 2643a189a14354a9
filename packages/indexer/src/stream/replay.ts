// Requests batches that a publisher sent before, and reads both shapes of its answer.
import { setTimeout as delay } from "node:timers/promises";
import { sequenceFrame } from "@svc/contract/kv-event.ts";
import { type Endpoint, readEndpoints } from "../registrations/register-input.ts";
import { Dealer } from "../zmtp/dealer.ts";
import { type Batch, readReplay } from "./frames.ts";
import { MAX_MESSAGE_BYTES } from "./zmq.ts";

/** No bounded buffer has more than this, so a longer replay is a fault. */
const MAX_REPLAYED = 4_000_000;

export class ReplayFailed extends Error {}

/** After the first answer, other masters have this long to answer as well, which means that more than one leads. */
const RIVALS_MS = 1000;

/** If several masters are asked, none may lead yet, and a standby does not answer: they are asked again at this interval until one answers. */
const ASK_AGAIN_MS = 500;

export type ReplayOptions = {
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /**
   * Reports which of several masters answered, first the one whose replay was read. It is called when all had their time, which may be
   * after the replay's end.
   */
  readonly onAnswered: (addresses: readonly string[]) => void;
};

/**
 * Yields the buffered batches from this number on, in the publisher's order, until the publisher's end mark. If there are several masters,
 * the leader answers.
 */
export async function* replay(endpoint: string, from: number, { timeoutMs, signal, onAnswered }: ReplayOptions): AsyncGenerator<Batch> {
  const asked = readEndpoints(endpoint, "replay_endpoint").map((each) => ({
    endpoint: each,
    socket: new Dealer({ endpoint: each, maxMessageBytes: MAX_MESSAGE_BYTES, timeoutMs }),
  }));
  const answered: string[] = [];
  let chosen: Dealer | undefined;
  const stop = (except?: Dealer) => {
    for (const { socket } of asked) if (socket !== except && !socket.closed) socket.close();
  };
  const end = () => stop();
  const again = setInterval(() => {
    for (const { socket } of asked) if (!socket.closed) request(socket, from);
  }, ASK_AGAIN_MS).unref();
  if (asked.length === 1) clearInterval(again);
  /** Runs while the other masters have time to answer. */
  let rivals: NodeJS.Timeout | undefined;
  let isOver = false;
  signal.addEventListener("abort", end);
  try {
    const answers = asked.map(async ({ endpoint: each, socket }) => {
      const frames = await ask(socket, each, from, timeoutMs);
      answered.push(each.address);
      return { socket, frames, address: each.address };
    });
    const first = await Promise.any(answers)
      .catch((error: AggregateError) => Promise.reject(error.errors[0] as Error))
      .finally(() => clearInterval(again));
    const { socket } = first;
    chosen = socket;
    if (asked.length > 1)
      rivals = setTimeout(() => {
        rivals = undefined;
        stop(socket);
        if (isOver) signal.removeEventListener("abort", end);
        if (!signal.aborted) onAnswered([first.address, ...answered.filter((address) => address !== first.address)]);
      }, RIVALS_MS).unref();
    for (let received = 0; received < MAX_REPLAYED; received++) {
      const message = readReplay(received === 0 ? first.frames : await socket.receive());
      if (message === "end") return;
      if (message === undefined) throw new ReplayFailed(`${endpoint} answered a replay request with something else`);
      yield message;
    }
    throw new ReplayFailed(`${endpoint} replayed more than ${MAX_REPLAYED} batches`);
  } catch (error) {
    if (error instanceof ReplayFailed) throw error;
    throw new ReplayFailed(`${endpoint} did not answer a replay request within ${timeoutMs} ms: ${(error as Error).message}`);
  } finally {
    isOver = true;
    if (rivals === undefined) {
      signal.removeEventListener("abort", end);
      stop();
    } else if (chosen?.closed === false) chosen.close();
  }
}

/** Sends a request and returns the first message of its answer. */
async function ask(socket: Dealer, { binds }: Endpoint, from: number, timeoutMs: number): Promise<Buffer[]> {
  if (binds) await bindWithin(socket, timeoutMs);
  else await socket.open();
  request(socket, from);
  return socket.receive();
}

/** A REQ socket would send the empty delimiter; without it engines do not recognize a request. */
const request = (socket: Dealer, from: number) => socket.request([Buffer.alloc(0), sequenceFrame(BigInt(from))]);

/** The former socket on this address may still be closing. */
async function bindWithin(socket: Dealer, timeoutMs: number): Promise<void> {
  const until = performance.now() + timeoutMs;
  for (;;) {
    try {
      return await socket.open();
    } catch (error) {
      if (performance.now() > until) throw error;
      await delay(50);
    }
  }
}
