// Says in a sentence what is wrong with a registration, judging from its first events and from its silence.

import { outcomeIndex } from "../index/native.ts";
import type { Subscription } from "../stream/subscription.ts";
import { type CacheGroup, groupComplaints } from "./cache-groups.ts";

const FLAPPING_RESTARTS = 4;
const FLAPPING_WITHIN_MS = 60_000;
const NOT_ONE_STORE =
  "they are not masters of one store, so what is answered of this instance is now the one's, now the other's; register each store by itself, and only masters of one cluster together";

/** The facts that the doctor needs in addition to the subscription itself. */
export type Circumstances = {
  /** The core's description of the last event that it refused. */
  readonly complaint: string;
  readonly silenceMs: number;
  /** Other registrations with the same endpoint, by name. */
  readonly sharing?: readonly string[];
  /** True if the memory budget evicted blocks of this subscription. */
  readonly evicted?: boolean;
  readonly groups?: readonly CacheGroup[];
};

export function diagnose(subscription: Subscription, circumstances: Circumstances, nowMs: number = Date.now()): string[] {
  const { complaint, silenceMs, sharing = [], evicted = false, groups = [] } = circumstances;
  const { counts, registration } = subscription;
  const count = (name: keyof typeof outcomeIndex) => counts.events[outcomeIndex[name]] ?? 0;
  const says: string[] = [];
  if (subscription.problem !== "") says.push(subscription.problem);
  const awayMs = counts.awaySinceMs === undefined ? 0 : nowMs - counts.awaySinceMs;
  if (/ENOTFOUND|EAI_AGAIN/.test(counts.unreachableWhy)) {
    says.push(`the host name in ${registration.endpoint} does not resolve (${counts.unreachableWhy}): check its spelling, and DNS on this host`);
  } else if (counts.batches > 0 && awayMs >= silenceMs) {
    says.push(
      `${registration.endpoint} has not answered for ${seconds(awayMs)}, and its last event came ${seconds(nowMs - (subscription.last.atMs ?? nowMs))} ago; it counts as dead, and none of its blocks counts until it answers: if the engine is gone, unregister it`,
    );
  } else if (counts.batches === 0 && nowMs - subscription.startedAtMs >= silenceMs) {
    says.push(
      subscription.connected
        ? `connected to ${registration.endpoint}, but no event has come for ${seconds(nowMs - subscription.startedAtMs)}: is KV event publishing switched on in the engine, and has it served a prompt longer than ${registration.block_size} tokens?`
        : `nobody speaks ZMQ at ${registration.endpoint} for ${seconds(nowMs - subscription.startedAtMs)}: check host and port (rank r of an engine publishes at its port + r), and that the engine's publisher is "zmq"`,
    );
  }
  // The core keeps only the last complaint, and names the seed that would fit if it finds one.
  const wrongSeed = `${count("wrong_seed")} events' seq_hashes are not XXH3-64 of their tokens under indexer.hash_seed; set the same seed on both sides`;
  if (count("wrong_seed") > 0) says.push(complaint.includes("seed") ? complaint : wrongSeed);
  if (count("tokens_missing") > 0) says.push(`${count("tokens_missing")} stored events were not indexed: they carry neither token_ids nor standard hashes`);
  const refused = [
    ["model_differs", "another model"],
    ["block_size_differs", "another block size"],
    ["lora_differs", "another LoRA adapter"],
    ["salt_differs", "another salt"],
    ["token_count_differs", "a token count that is not a multiple of the registered block size"],
    ["parent_missing", "beginning inside a chain whose prefix is not known"],
  ] as const;
  const kinds = refused.filter(([name]) => count(name) > 0);
  const last = kinds.length > 1 ? "the last refusal of any kind" : "the last refusal";
  for (const [name, what] of kinds) says.push(`${count(name)} events were refused for ${what}; ${last}: ${complaint}`);
  says.push(...groupComplaints(groups, registration.block_size));
  if (count("rank_differs") > 0)
    says.push(
      `${count("rank_differs")} batches carry another data-parallel rank than the registered ${registration.dp_rank}; their blocks count for the rank that they carry: register each rank with the endpoint it publishes at`,
    );
  if (count("unknown_event") + count("malformed_event") > 0)
    says.push(`${count("unknown_event") + count("malformed_event")} events could not be understood and were skipped`);
  if (count("lost_removal") > 0)
    says.push(`${count("lost_removal")} removals could not be read, or carried out for lack of memory; the blocks that they may have named are uncertain`);
  if (counts.malformedFrames > 0)
    says.push(
      `${counts.malformedFrames} messages were malformed and were skipped; what they said is not indexed, and the blocks that they may have named are uncertain`,
    );
  if (count("no_hash") > 0 && count("blocks_stored") === 0)
    says.push("every event came without a hash: the store's keys are neither decimal nor 0x-hexadecimal numbers");
  if (count("over_budget") > 0) says.push(`${count("over_budget")} events did not fit into the memory budget; raise indexer.memory_budget_mb`);
  if (count("too_many_streams") > 0) says.push(`${count("too_many_streams")} events name more streams than one registration may have`);
  if (counts.brokenOff > 0)
    says.push(
      `connections to ${registration.endpoint} were ended here ${counts.brokenOff} times, the last one because ${counts.brokenOffWhy}; what such a connection brought last is lost`,
    );
  const several = flaps(subscription, nowMs);
  if (subscription.rivals.length > 1)
    says.push(
      `${subscription.rivals.join(" and ")} both answer as the master that leads (the last replay taken in was that of ${subscription.rivals[0]}): ${NOT_ONE_STORE}`,
    );
  else if (several && registration.endpoint.includes(";"))
    says.push(`the masters at ${registration.endpoint} go back in their batch numbers again and again: ${NOT_ONE_STORE}`);
  else if (several)
    says.push(
      `${registration.endpoint} seems to have two publishers: batch numbers go back again and again. Give each process (each rank of an engine) an endpoint and a registration of its own`,
    );
  // Two publishers on one endpoint look like one that loses events, and no advice about lost events would help them. A gap that an
  // unreadable message made is reported above; no replay heals it.
  const unread = counts.malformedFrames + count("lost_removal") > 0 && counts.lostGaps === 0;
  if (subscription.gap && !several && !unread) {
    const advice =
      registration.replay_endpoint === ""
        ? "register a replay_endpoint so that gaps can be healed"
        : "raise buffer_steps in the engine's KV events configuration";
    says.push(
      `events were lost and could not be replayed; the blocks that they can have touched are uncertain until they are stored again, and dropped after indexer.uncertain_seconds. ${advice}`,
    );
  }
  if (counts.strays > 0)
    says.push(
      `${counts.strays} messages that came to ${registration.endpoint} name another publisher, the last one by the topic ${JSON.stringify(counts.strayTopic)}: a topic kv@POD@MODEL goes to the registration with instance_id POD and modelname MODEL`,
    );
  if (sharing.length > 0)
    says.push(
      `${registration.endpoint} is registered for ${sharing.join(", ")} as well: each of them gets all events that come from there, so answers name all of them for the same blocks; give each engine (each rank) an endpoint of its own, or unregister those that are not there`,
    );
  if (evicted)
    says.push(
      "the memory budget was full and blocks of this publisher were evicted, so its matches may be shorter than what it has; raise indexer.memory_budget_mb",
    );
  if (count("parked") > 0 && count("blocks_stored") === 0)
    says.push("every stored event waits for a parent that was never seen: the indexer came late and there is no replay_endpoint");
  return says;
}

function flaps({ counts: { restartsAtMs } }: Subscription, nowMs: number): boolean {
  return restartsAtMs.filter((at) => nowMs - at < FLAPPING_WITHIN_MS).length >= FLAPPING_RESTARTS;
}

function seconds(ms: number): string {
  return `${Math.round(ms / 1000)} s`;
}
