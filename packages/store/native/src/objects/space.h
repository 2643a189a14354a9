// The space of segments: how much of each tier is used, where a new replica goes, and which freed ranges cool down before they are reused.
#pragma once
#include "common.h"
#include "objects/put_policy.h"

namespace svc {

// One tier's usage, and the state of its eviction.
struct TierUsage {
  u64 used = 0, capacity = 0, evictAtMs = 0, pausedUntilMs = 0;
  bool noSpace = false;  // a put found none
};

// Owns the usage of the tiers and the ranges that cool down; the allocators belong to the segments. The server's lock guards it.
class Space : Part {
 public:
  static constexpr u32 mostReplicas = 16;

  explicit Space(Common& common) : Part(common) {}

  TierUsage& usageOf(Tier tier) { return usage_[static_cast<u32>(tier)]; }
  const TierUsage& usageOf(Tier tier) const { return usage_[static_cast<u32>(tier)]; }
  // Takes ranges for at most `wanted` replicas, with one holder each; returns how many there are.
  u32 place(u64 size, u64 wanted, const PutPolicy& policy, Tier tier, Placed* out);
  bool placeIn(u32 segment, u64 size, Placed* out, u32& placed);
  // Returns whether the last call of `place` tried a segment that is large enough, so that an eviction may help.
  bool mayFit() const { return mayFit_; }
  void free(u32 segment, u32 node);
  // Frees a range that the log records as cooling down.
  void freeCooling(u32 segment, u32 node);
  // Keeps a range unused for that long, as a late writer or reader may still use it.
  void cool(u32 segment, u32 node, u64 forMs, bool forReaders = false);
  // Frees ranges that have cooled down.
  void tend(u32 most);
  const std::vector<Cooling>& cooling() const { return cooling_; }
  // Counts again what the segments' allocators have, after they were rebuilt.
  void recount();

 private:
  TierUsage usage_[tiers];
  std::vector<Cooling> cooling_;  // a heap; the range that expires first is on top
  bool mayFit_ = false;
};

}  // namespace svc
