// Background work, in slices: eviction, expired puts, replicas of lost segments, and ranges that have cooled down.
#include <algorithm>
#include <cmath>

#include "store.h"

namespace svc {

namespace {
constexpr u32 mostErasedPerSlice = 512, samples = 1024;
// Limits of one eviction for a put: records scanned, objects evicted, bytes of log records; and how many evictions a put may cause.
constexpr u32 mostLookedAt = 4'096, mostEvictedAtOnce = 64, mostEvictions = 8;
constexpr std::size_t mostLogged = 4 << 10;
constexpr u64 discardEveryMs = 2'000, evictAgainMs = 10, evictPauseMs = 200;
}  // namespace

bool Store::mayEvict(const Object& object, bool pinned) const {
  if (object.keyBytes == 0 || (object.flags & (flag::hardPin | flag::unfinished | flag::filing)) || leased(object)) return false;
  if (object.extra != 0 && table.extras[object.extra].task != TaskKind::none) return false;
  return pinned || !softPinned(object);
}

bool Store::evictable(u32 index, bool pinned) const {
  const Object& object = table[index];
  return mayEvict(object, pinned) && frees(index) && groupMayGo(object, pinned, 0);
}

bool Store::frees(u32 index) const {
  bool frees = false;
  eachReplica(index, [&](const Replica& replica) {
    const Segment* segment = cluster.segment(replica.segment);
    frees = frees || (segment != nullptr && segment->tier == evicting_ && segment->allocatable());
  });
  return frees;
}

bool Store::groupMayGo(const Object& object, bool pinned, u32 spared) const {
  const u32 group = object.extra == 0 ? 0 : table.extras[object.extra].group;
  if (group == 0) return true;
  for (u32 at = groups_[group].first; at != 0; at = table.extras[table[at].extra].groupAfter)
    if (at == spared || !mayEvict(table[at], pinned)) return false;
  return true;
}

bool Store::mustEvict(Tier tier) {
  TierUsage& usage = usageOf(tier);
  if (usage.capacity == 0) usage.noSpace = false;
  if (usage.capacity == 0 || nowMs_ < usage.evictAtMs) return false;
  return usage.noSpace || static_cast<double>(usage.used) > watermarkOf(tier) * static_cast<double>(usage.capacity);
}

void Store::beginEviction(Tier tier) {
  evicting_ = tier;
  TierUsage& usage = usageOf(tier);
  const auto capacity = static_cast<double>(usage.capacity);
  const double each = tier == Tier::nof ? settings.nofEvictionRatio : settings.evictionRatio;
  const double over = std::max(0.0, static_cast<double>(usage.used) / capacity - watermarkOf(tier));
  const double target = std::max(each, over == 0 ? 0 : over + each);
  evictTarget_ = static_cast<u64>(std::ceil(target * capacity));
  evictLeast_ = static_cast<u64>(std::max(target / 2, over) * capacity);
  evicted_ = 0;
  evictQueued_ = 0;
  ++counters.evictions;
  // The age up to which objects are evicted is estimated from a sample, since ordering all of them would block the server thread.
  std::vector<std::pair<Tick, u64>> found;
  u64 seen = 0;
  const u32 end = table.end();
  for (u32 i = 0; i < samples && end > 1; ++i) {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    const u32 index = end <= samples ? i + 1 : 1 + static_cast<u32>(random_ % (end - 1));
    if (index >= end) break;
    ++seen;
    if (mayEvict(table[index], false) && frees(index)) found.push_back({table[index].lease, rangeBytes(table[index].size, tier)});
  }
  evictUntil_ = ~Tick{0};
  if (seen > 0 && end > samples) {
    std::sort(found.begin(), found.end());
    const double scale = static_cast<double>(end - 1) / static_cast<double>(seen);
    double bytes = 0;
    for (const auto& [lease, size] : found) {
      bytes += static_cast<double>(size) * scale;
      if (bytes < static_cast<double>(evictTarget_)) continue;
      evictUntil_ = lease;
      break;
    }
  }
  usage.noSpace = false;
  beginPass(Pass::evict);
  cursor_ = evictCursor_ < end ? evictCursor_ : 1;
}

void Store::beginPass(Pass pass) {
  pass_ = pass;
  cursor_ = 1;
  left_ = table.end() - 1;
  if (pass == Pass::dead) dead_.swap(dying_);
}

// Returns whether something was erased.
bool Store::visit(u32 index) {
  if (!table.live(index)) return false;
  if (pass_ == Pass::dead) {
    const u32 before = table.size();
    const u32 kept = pruned(index);
    if (kept == 0) ++counters.replicasLost;
    return table.size() != before;
  }
  if (pass_ == Pass::discard) {
    Object& object = table[index];
    if ((object.flags & flag::unfinished) && nowMs_ >= u64{object.started} * tickMs + settings.discardMs) {
      return discard(index);
    }
    if ((object.flags & flag::filing) && nowMs_ >= u64{object.started} * tickMs + settings.discardMs) {
      if (object.client != 0) ++cluster.client(object.client).unfiled;
      const u32 before = table.size();
      dropShared(index, Gone::expired);
      if (table.size() != before) return true;
    }
    if (object.extra == 0) return false;
    Extra& extra = table.extras[object.extra];
    if (extra.task == TaskKind::none) return false;
    if (abandoned(extra) || nowMs_ >= u64{extra.taskStarted} * tickMs + settings.taskTimeoutMs) endTask(index);
    return false;
  }
  const bool pinned = pass_ == Pass::evictPinned;
  const Object& object = table[index];
  if (object.lease > evictUntil_ || !evictable(index, pinned) || (evicting_ == Tier::memory && leaveToDisk(index))) return false;
  evictWhole(index, evicting_);
  return true;
}

void Store::evictWhole(u32 index, Tier tier) {
  const Object& object = table[index];
  const u32 group = object.extra == 0 ? 0 : table.extras[object.extra].group;
  std::vector<u32> leaving;
  // The members of a group are evicted together.
  for (u32 at = group == 0 ? 0 : groups_[group].first; at != 0; at = table.extras[table[at].extra].groupAfter)
    if (at != index) leaving.push_back(at);
  leaving.push_back(index);
  for (const u32 each : leaving) evictOne(each, tier);
}

void Store::evictOne(u32 index, Tier tier) {
  const bool nof = tier == Tier::nof;
  if (nof ? !anyNof(index) : !inMemory(index)) return;
  evicted_ += rangeBytes(table[index].size, tier);
  ++(nof ? counters.nofEvictedObjects : counters.evictedObjects);
  (nof ? counters.nofEvictedBytes : counters.evictedBytes) += table[index].size;
  if (anyElse(index, tier)) dropTier(index, tier);
  else erase(index, 0, true, Gone::evicted);
}

void Store::endPass() {
  const Pass ended = pass_;
  pass_ = Pass::none;
  if (ended == Pass::dead) {
    for (const u32 number : dead_) {
      cluster.forget(number);
      journal.segmentSwept(number);
    }
    dead_.clear();
  }
  if (ended != Pass::evict && ended != Pass::evictPinned) return;
  evictCursor_ = cursor_;
  if (ended == Pass::evict && evicted_ < evictLeast_ && settings.evictSoftPinned) {
    evictUntil_ = ~Tick{0};
    beginPass(Pass::evictPinned);
    return;
  }
  // Mooncake's master evicts as often; if nothing could be evicted, retrying at once would only burn CPU time.
  usageOf(evicting_).evictAtMs = nowMs_ + (evicted_ == 0 ? evictPauseMs : evictAgainMs);
  if (evicted_ == 0) usageOf(evicting_).pausedUntilMs = nowMs_ + evictPauseMs;
}

bool Store::evictNow(u64 size, Tier tier) {
  TierUsage& usage = usageOf(tier);
  const bool evicts = pass_ == Pass::evict || pass_ == Pass::evictPinned;
  if (usage.capacity == 0 || nowMs_ < usage.pausedUntilMs || (evicts && evicting_ != tier)) return false;
  const std::vector<u32>& open = cluster.open(tier);
  const u32 looked = std::min(static_cast<u32>(open.size()), mostLookedAt);
  // A size that no segment can hold must not cost an object.
  if (std::none_of(open.begin(), open.begin() + looked, [&](u32 number) { return cluster.segment(number)->size >= size; })) return false;
  const Pass interrupted = evicts ? Pass::none : pass_;
  const u32 cursor = cursor_, left = left_;
  if (!evicts) beginEviction(tier);
  evictTarget_ = std::max(evictTarget_, evicted_ + size);
  const u64 before = usage.used;
  const std::size_t logged = journal.pending.size();
  u32 erased = 0;
  for (u32 budget = mostLookedAt; budget > 0 && left_ > 0 && erased < mostEvictedAtOnce && journal.pending.size() < logged + mostLogged; --budget, --left_) {
    if (cursor_ >= table.end()) cursor_ = 1;
    if (visit(cursor_++)) ++erased;
    if (evicted_ >= evictTarget_) left_ = 1;
  }
  while (left_ == 0 && pass_ != Pass::none) endPass();
  if (interrupted != Pass::none) {
    evictCursor_ = cursor_;
    pass_ = interrupted;
    cursor_ = cursor;
    left_ = left;
  }
  return usage.used < before;
}

u32 Store::placeEvicting(u64 size, const PutPolicy& policy, Tier tier, Placed* out, bool optional) {
  const u64 wanted = tier == Tier::nof ? policy.nofReplicas : policy.replicas;
  u32 placed = place(size, wanted, policy, tier, out);
  if (placed > 0 || wanted == 0 || optional) return placed;
  for (u32 i = 0; placed == 0 && mayFit_ && i < mostEvictions && evictNow(size, tier); ++i) placed = place(size, wanted, policy, tier, out);
  if (placed > 0) usageOf(tier).noSpace = false;
  return placed;
}

bool Store::tend(u32 budget) {
  watchClients();
  for (u32 i = 0; i < mostErasedPerSlice && !cooling_.empty() && cooling_.front().until <= tick(); ++i) {
    std::pop_heap(cooling_.begin(), cooling_.end());
    const Cooling range = cooling_.back();
    cooling_.pop_back();
    if (cluster.segment(range.segment) != nullptr) freeCooling(range.segment, range.node);
  }
  endOldExtents(mostErasedPerSlice);
  if (offloads()) fillOffloads(mostErasedPerSlice);
  if (pass_ == Pass::none) {
    if (deadDirty_) {
      deadDirty_ = false;
      beginPass(Pass::dead);
    } else if (mustEvict(Tier::memory)) {
      beginEviction(Tier::memory);
    } else if (mustEvict(Tier::nof)) {
      beginEviction(Tier::nof);
    } else if (nowMs_ >= discardAtMs_) {
      discardAtMs_ = nowMs_ + discardEveryMs;
      if (unfinished_ > 0 || filing_ > 0 || table.extras.live() > 0) beginPass(Pass::discard);
    }
    if (pass_ == Pass::none) return false;
  }
  u32 erased = 0;
  const bool evicting = pass_ == Pass::evict || pass_ == Pass::evictPinned;
  for (; budget > 0 && left_ > 0 && erased < mostErasedPerSlice; --budget, --left_) {
    if (cursor_ >= table.end()) cursor_ = 1;
    if (visit(cursor_++)) ++erased;
    if (evicting && evicted_ >= evictTarget_) left_ = 1;
  }
  if (left_ == 0) endPass();
  return pass_ != Pass::none;
}

}  // namespace svc
