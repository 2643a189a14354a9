// Passes over the table in slices: eviction, expired puts, and replicas of lost segments.
#include "eviction/eviction.h"

#include <algorithm>
#include <cmath>

namespace svc {

namespace {
constexpr u32 mostErasedPerSlice = 512, samples = 1024;
// Limits of one eviction for a put: records scanned, objects evicted, bytes of log records; and how many evictions a put may cause.
constexpr u32 mostLookedAt = 4'096, mostEvictedAtOnce = 64, mostEvictions = 8;
constexpr std::size_t mostLogged = 4 << 10;
constexpr u64 discardEveryMs = 2'000, evictAgainMs = 10, evictPauseMs = 200;
}  // namespace

bool Eviction::mayEvict(const Object& object, bool pinned) const {
  if (object.keyBytes == 0 || (object.flags & (flag::hardPin | flag::unfinished | flag::filing)) || objects.leased(object)) return false;
  if (object.extra != 0 && table.extras[object.extra].task != TaskKind::none) return false;
  return pinned || !objects.softPinned(object);
}

bool Eviction::evictable(u32 index, bool pinned) const {
  const Object& object = table[index];
  return mayEvict(object, pinned) && frees(index) && groupMayGo(object, pinned, 0);
}

bool Eviction::frees(u32 index) const {
  return where.any(index, [&](const Replica& replica) {
    const Segment* segment = cluster.segment(replica.segment);
    return segment != nullptr && segment->tier == evicting_ && segment->allocatable();
  });
}

bool Eviction::groupMayGo(const Object& object, bool pinned, u32 spared) const {
  for (u32 at = groups.first(object); at != 0; at = groups.next(at))
    if (at == spared || !mayEvict(table[at], pinned)) return false;
  return true;
}

bool Eviction::mustEvict(Tier tier) {
  TierUsage& usage = space.usageOf(tier);
  if (usage.capacity == 0) usage.noSpace = false;
  if (usage.capacity == 0 || nowMs() < usage.evictAtMs) return false;
  return usage.noSpace || static_cast<double>(usage.used) > watermarkOf(tier) * static_cast<double>(usage.capacity);
}

void Eviction::beginEviction(Tier tier) {
  evicting_ = tier;
  TierUsage& usage = space.usageOf(tier);
  const auto capacity = static_cast<double>(usage.capacity);
  const double each = tier == Tier::nof ? settings.nofEvictionRatio : settings.evictionRatio;
  const double over = std::max(0.0, static_cast<double>(usage.used) / capacity - watermarkOf(tier));
  const double target = std::max(each, over == 0 ? 0 : over + each);
  evictTarget_ = static_cast<u64>(std::ceil(target * capacity));
  evictLeast_ = static_cast<u64>(std::max(target / 2, over) * capacity);
  evicted_ = 0;
  queued_ = 0;
  ++counters.evictions;
  // The age up to which objects are evicted is estimated from a sample, since ordering all of them would block the server thread.
  std::vector<std::pair<Tick, u64>> found;
  u64 seen = 0;
  const u32 end = table.end();
  for (u32 i = 0; i < samples && end > 1; ++i) {
    const u64 chosen = common.random();
    const u32 index = end <= samples ? i + 1 : 1 + static_cast<u32>(chosen % (end - 1));
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

void Eviction::beginPass(Pass pass) {
  pass_ = pass;
  cursor_ = 1;
  left_ = table.end() - 1;
  if (pass == Pass::dead) dead_.swap(holders.hidden);
}

bool Eviction::visit(u32 index) {
  if (!table.live(index)) return false;
  if (pass_ == Pass::dead) {
    const u32 before = table.size();
    const u32 kept = objects.pruned(index);
    if (kept == 0) ++counters.replicasLost;
    return table.size() != before;
  }
  if (pass_ == Pass::discard) return discard(index);
  const bool pinned = pass_ == Pass::evictPinned;
  const Object& object = table[index];
  if (object.lease > evictUntil_ || !evictable(index, pinned)) return false;
  if (evicting_ == Tier::memory) {
    const Disks::Fate fate = disks.leave(index, queued_);
    // Its memory is freed a little later.
    if (fate == Disks::Fate::leaving) evicted_ += object.size;
    if (fate != Disks::Fate::evicted) return false;
  }
  evictWhole(index, evicting_);
  return true;
}

bool Eviction::discard(u32 index) {
  Object& object = table[index];
  if ((object.flags & flag::unfinished) && nowMs() >= u64{object.started} * tickMs + settings.discardMs) {
    return objects.discard(index);
  }
  if ((object.flags & flag::filing) && nowMs() >= u64{object.started} * tickMs + settings.discardMs) {
    if (object.client != 0) ++cluster.client(object.client).unfiled;
    const u32 before = table.size();
    folder.drop(index, Gone::expired);
    if (table.size() != before) return true;
  }
  if (object.extra == 0) return false;
  Extra& extra = table.extras[object.extra];
  if (extra.task == TaskKind::none) return false;
  if (objects.abandoned(extra) || nowMs() >= u64{extra.taskStarted} * tickMs + settings.taskTimeoutMs) objects.endTask(index);
  return false;
}

void Eviction::evictWhole(u32 index, Tier tier) {
  std::vector<u32> leaving;
  // The members of a group are evicted together.
  for (u32 at = groups.first(table[index]); at != 0; at = groups.next(at))
    if (at != index) leaving.push_back(at);
  leaving.push_back(index);
  for (const u32 each : leaving) evictOne(each, tier);
}

void Eviction::evictOne(u32 index, Tier tier) {
  const bool nof = tier == Tier::nof;
  if (nof ? !where.anyNof(index) : !where.inMemory(index)) return;
  evicted_ += rangeBytes(table[index].size, tier);
  ++(nof ? counters.nofEvictedObjects : counters.evictedObjects);
  (nof ? counters.nofEvictedBytes : counters.evictedBytes) += table[index].size;
  if (where.anyElse(index, tier)) objects.dropOrErase(index, [&](const Replica& replica) { return where.inTier(replica, tier); }, 0, Gone::evicted);
  else objects.erase(index, 0, true, Gone::evicted);
}

void Eviction::endPass() {
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
  space.usageOf(evicting_).evictAtMs = nowMs() + (evicted_ == 0 ? evictPauseMs : evictAgainMs);
  if (evicted_ == 0) space.usageOf(evicting_).pausedUntilMs = nowMs() + evictPauseMs;
}

bool Eviction::evictNow(u64 size, Tier tier) {
  TierUsage& usage = space.usageOf(tier);
  const bool running = evicts();
  if (usage.capacity == 0 || nowMs() < usage.pausedUntilMs || (running && evicting_ != tier)) return false;
  const std::vector<u32>& open = cluster.open(tier);
  const u32 looked = std::min(static_cast<u32>(open.size()), mostLookedAt);
  // A size that no segment can hold must not cost an object.
  if (std::none_of(open.begin(), open.begin() + looked, [&](u32 number) { return cluster.segment(number)->size >= size; })) return false;
  const Pass interrupted = running ? Pass::none : pass_;
  const u32 cursor = cursor_, left = left_;
  if (!running) beginEviction(tier);
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

u32 Eviction::place(u64 size, const PutPolicy& policy, Tier tier, Placed* out, bool optional) {
  const u64 wanted = tier == Tier::nof ? policy.nofReplicas : policy.replicas;
  u32 placed = space.place(size, wanted, policy, tier, out);
  if (placed > 0 || wanted == 0 || optional) return placed;
  for (u32 i = 0; placed == 0 && space.mayFit() && i < mostEvictions && evictNow(size, tier); ++i) placed = space.place(size, wanted, policy, tier, out);
  if (placed > 0) space.usageOf(tier).noSpace = false;
  return placed;
}

bool Eviction::tend(u32 budget) {
  if (pass_ == Pass::none) {
    if (!holders.hidden.empty()) {
      beginPass(Pass::dead);
    } else if (mustEvict(Tier::memory)) {
      beginEviction(Tier::memory);
    } else if (mustEvict(Tier::nof)) {
      beginEviction(Tier::nof);
    } else if (nowMs() >= discardAtMs_) {
      discardAtMs_ = nowMs() + discardEveryMs;
      if (objects.unfinished() > 0 || objects.filing() > 0 || table.extras.live() > 0) beginPass(Pass::discard);
    }
    if (pass_ == Pass::none) return false;
  }
  u32 erased = 0;
  const bool evicting = evicts();
  for (; budget > 0 && left_ > 0 && erased < mostErasedPerSlice; --budget, --left_) {
    if (cursor_ >= table.end()) cursor_ = 1;
    if (visit(cursor_++)) ++erased;
    if (evicting && evicted_ >= evictTarget_) left_ = 1;
  }
  if (left_ == 0) endPass();
  return pass_ != Pass::none;
}

}  // namespace svc
