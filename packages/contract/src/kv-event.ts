// KV events in their wire format, as an engine, a store master or our own publisher sends them, and the replay requests.

/** `[topic, sequence, payload]`; the payload is msgpack `[timestamp, [event…], rank]`. */
export const EVENT_FRAMES = 3;

/** The sequence number that ends a replay: -1 as signed big-endian. */
export const REPLAY_END = 0xffffffffffffffffn;

export type EventType = "stored" | "removed" | "cleared";

/** The specification's envelope; null and absent members mean the same. */
export type EventEnvelope = {
  event_id: number | bigint;
  timestamp?: number | null;
  event_type: EventType;
  model_name?: string | null;
  block_size?: number | null;
  additional_salt?: string | null;
  lora_name?: string | null;
  tenant_id?: string;
  backend_id?: string;
  medium?: string | null;
  dp_rank?: number | null;
};

export type StoredEvent = EventEnvelope & {
  event_type: "stored";
  seq_hashes: readonly bigint[];
  base_block_idx?: number | null;
  parent_hash?: bigint | null;
  token_ids?: readonly number[] | null;
};

export type RemovedEvent = EventEnvelope & { event_type: "removed"; seq_hashes: readonly bigint[]; base_block_idx?: number };

export type ClearedEvent = EventEnvelope & { event_type: "cleared" };

export type KvEvent = StoredEvent | RemovedEvent | ClearedEvent;

/** The seed of the hashing standard if no other is configured. */
export const DEFAULT_HASH_SEED = 1337;

/** Encodes a publisher's sequence number as its frame. */
export function sequenceFrame(sequence: bigint): Buffer {
  const frame = Buffer.alloc(8);
  frame.writeBigUInt64BE(sequence);
  return frame;
}
