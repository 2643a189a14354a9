// Counters of the outcomes of a batch's events.
#pragma once
#include <array>

#include "hashing.h"

namespace svc {

// The outcomes of events, with the names that src/native.ts expects.
#define SVC_OUTCOMES(each)                                                                                                        \
  each(Events, "events") each(Stored, "blocks_stored") each(Removed, "blocks_removed") each(Cleared, "cleared")                     \
  each(Parked, "parked") each(Unparked, "unparked") each(ParkDropped, "park_dropped") each(Duplicate, "duplicate_event_id")         \
  each(IdJump, "event_id_jump") each(MalformedEvent, "malformed_event") each(UnknownEvent, "unknown_event") each(Unhashed, "no_hash") \
  each(RemoteBlocks, "remote") each(OtherGroup, "other_cache_group") each(RefusedModel, "model_differs")                            \
  each(RefusedBlockSize, "block_size_differs") each(RefusedLora, "lora_differs") each(RefusedSalt, "salt_differs")                  \
  each(RefusedTokens, "token_count_differs") each(MissingTokens, "tokens_missing") each(MissingParent, "parent_missing")            \
  each(TooManyStreams, "too_many_streams") each(OverBudget, "over_budget") each(UnknownRemoved, "removed_unknown")                  \
  each(WrongSeed, "wrong_seed") each(EngineHashes, "engine_hashes") each(StandardHashes, "standard_hashes")                       \
  each(RankDiffers, "rank_differs") each(Multimodal, "multimodal_blocks") each(ClearedAll, "cleared_all") each(LostRemoval, "lost_removal")
#define SVC_OUTCOME_VALUE(value, name) value,
enum Outcome : u32 { SVC_OUTCOMES(SVC_OUTCOME_VALUE) outcomeCount };
#undef SVC_OUTCOME_VALUE
using Outcomes = std::array<u32, outcomeCount>;

}  // namespace svc
