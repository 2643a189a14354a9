// Decodes the frames that ZMQ delivers: live batches, and the two shapes of replay answers.
import { EVENT_FRAMES } from "@svc/contract/kv-event.ts";

export type Batch = { readonly sequence: number; readonly payload: Buffer };

const END = "end";
const FORMER_END = Buffer.alloc(8, 0xff);
const MAX_HIGH_WORD = 2 ** 21 - 1;

/** Decodes a live message; undefined if it is malformed. */
export function readLive(frames: readonly Buffer[]): Batch | undefined {
  if (frames.length !== EVENT_FRAMES) return undefined;
  return batchOf(frames[1], frames[2]);
}

/**
 * Decodes a replay's message. Older engines send ["", sequence, payload], newer ones ["", topic, sequence, payload]; both end with a
 * sequence of -1.
 */
export function readReplay(frames: readonly Buffer[]): Batch | typeof END | undefined {
  // A REQ socket would have removed the empty delimiter. A topic may be empty as well, so at most one frame is removed.
  const inner = frames[0]?.length === 0 ? frames.slice(1) : frames;
  const [sequence, payload] = inner.length === 2 ? inner : inner.slice(1);
  if (inner.length < 2 || inner.length > 3 || sequence?.length !== 8 || payload === undefined) return undefined;
  if (sequence.equals(FORMER_END)) return END;
  return batchOf(sequence, payload);
}

function batchOf(sequence: Buffer | undefined, payload: Buffer | undefined): Batch | undefined {
  if (sequence?.length !== 8 || payload === undefined) return undefined;
  // Sequences go up to 2^53 - 1; the mark of a replay's end lies above.
  const high = sequence.readUInt32BE(0);
  if (high > MAX_HIGH_WORD) return undefined;
  return { sequence: high * 2 ** 32 + sequence.readUInt32BE(4), payload };
}
