// Removes blocks: ghosts, purges of streams, and eviction when the memory budget is reached.
#include <algorithm>
#include <functional>

#include "block_keys.h"

namespace svc {
namespace {

// The bytes of one block: its share of a table whose segments were all split just now, its own, and those with a publisher's name.
constexpr u64 tableBytes = 7, plainBytes = 12, namedBytes = 20;
// The fixed memory of an index of any size: scratch buffers, the ring of ghosts, the empty tables.
constexpr u64 fixedBytes = 1 << 20;
// Before an eviction: the cleared blocks examined in one go, and the number of such rounds.
constexpr u32 reclaimSlice = 1 << 12, mostReclaims = 8;
// The blocks evicted in one go; it takes a quarter of a millisecond, and queries wait for it.
constexpr u64 evictSlice = 1 << 11;
// The sparse segments merged at the end of a reclaim round, which takes a quarter of a millisecond.
constexpr u32 mostShrinks = 8;
// A chunk of 16 blocks, as the allocator rounds it.
constexpr u64 chunkBytes = 256;
constexpr std::size_t manyCopies = 4096;

}  // namespace

void Index::toGhost(u32 block) {
  ghosts_.push_back(block);
  // Ghosts are released in groups: each costs a few cache lines that were not used for long.
  if (ghosts_.size() >= ghostCapacity + releasedAtOnce) releaseGhosts();
}

u32 Index::releaseGhosts() {
  u32 blocks[releasedAtOnce], count = 0;
  const std::size_t some = std::min<std::size_t>(releasedAtOnce, ghosts_.size());
  for (std::size_t i = 0; i < some; ++i) {
    __builtin_prefetch(&arena_.holders[ghosts_[i]]);
    __builtin_prefetch(&arena_.sequence[ghosts_[i]]);
    if (engineInUse_) __builtin_prefetch(&arena_.engine[ghosts_[i]]);
  }
  for (; count < some; ghosts_.pop_front()) {
    // A ghost that is in the list twice is released once.
    const u32 ghost = ghosts_.front();
    blocks[count++] = arena_.used(ghost) && sets_[arena_.holders[ghost]].empty() ? ghost : 0;
  }
  return releaseAll(blocks, count);
}

u32 Index::releaseAll(const u32* blocks, u32 count) {
  constexpr u32 most = BlockArena::pageBlocks;
  u64 keys[most], nameKeys[most];
  IdTable::Spot spots[most], nameSpots[most];
  for (u32 i = 0; i < count; ++i) {
    const u32 block = blocks[i];
    if (block == 0) continue;
    table_.prefetch(spots[i] = table_.spotOf(keys[i] = keyOf(block)));
    if (arena_.engine[block] != 0) engineTable_.prefetch(nameSpots[i] = engineTable_.spotOf(nameKeys[i] = nameKeyOf(block)));
  }
  u32 released = 0;
  for (u32 i = 0; i < count; ++i) {
    const u32 block = blocks[i];
    if (block == 0 || !arena_.used(block)) continue;
    table_.erase(spots[i], keys[i], block);
    if (arena_.engine[block] != 0) engineTable_.erase(nameSpots[i], nameKeys[i], block);
    free(block);
    ++released;
  }
  return released;
}

void Index::release(u32 block) {
  table_.erase(keyOf(block), block);
  if (arena_.engine[block] != 0) unname(block);
  free(block);
}

void Index::free(u32 block) {
  sets_.lose(arena_.holders[block], 1);
  arena_.release(block);
  ++freedSinceShrink_;
}

bool Index::shrinkTables() {
  freedSinceShrink_ = 0;
  bool more = table_.shrink(BlockKeys<false>(*this));
  if (engineInUse_) more |= engineTable_.shrink(BlockKeys<true>(*this));
  return more;
}

void Index::purge(const std::vector<u32>& streams, std::int64_t space) {
  if (streams.empty()) return;
  sets_.withdraw(streams, space);
  Subscription& sub = subscriptions_[streams_[streams.front()].subscription];
  // Own names of freed blocks must be gone before their numbers are reused.
  if (space < 0 && streams.size() == sub.streams.size()) sub.names.clear();
  else sweepNames(sub);
  dropCopies(sub, streams, space);
  ++changes_;
}

bool Index::reclaim(u32 most) {
  constexpr u32 ahead = 24;
  for (u32 looked = 0; looked < most && sets_.stale() > 0; ++looked) {
    if (reclaimAt_ < BlockArena::pageBlocks || reclaimAt_ >= arena_.end()) reclaimAt_ = BlockArena::pageBlocks;
    const u32 block = reclaimAt_++;
    if (block + ahead < arena_.end() && isGone(block + ahead)) {
      table_.prefetch(keyOf(block + ahead));
      if (engineInUse_) engineTable_.prefetch(nameKeyOf(block + ahead));
    }
    const u32 set = arena_.holders[block];
    if (!sets_.isStale(set)) continue;
    const u32 now = sets_.current(set);
    setHolders(block, now);
    if (sets_[now].empty()) release(block);
  }
  bool more = false;
  for (u32 i = 0; i < mostShrinks && (more = shrinkTables()); ++i) {
  }
  if (sets_.stale() > 0) return true;
  sets_.collect();
  return more;
}

u64 Index::bytes() const {
  return indexBytes() + nameBytes() + sets_.bytes() + spaceBytes_ + subscriptionBytes_ + fixedBytes;
}

// Each batch changes only one publisher's share.
void Index::weigh(Subscription& sub) {
  const u64 now = sub.names.bytes() + sub.copies.bytes() + sub.groups.size() * sizeof(CacheGroup) + sub.parkedBlocks * 24ull + sub.waiting.bytes() + sub.chunks.size() * chunkBytes + sub.seen.size() * sizeof(Subscription::Seen) + (sub.spaces.size() + sub.lastEventId.size() + sub.unverified.size()) * 64;
  subscriptionBytes_ += now - sub.weighed;
  sub.weighed = now;
}

u64 Index::limitBlocks() const {
  const u64 other = bytes() - indexBytes() - nameBytes() + table_.growthBytes() + engineTable_.growthBytes();
  const u64 left = budget_ > other ? budget_ - other : 0;
  // Tables keep the memory that they once had.
  const auto holds = [left](u64 taken, u64 eachBlock) { return (left > taken ? left - taken : 0) / eachBlock; };
  const u64 table = table_.bytes(), names = engineTable_.bytes();
  u64 blocks = std::min(holds(0, plainBytes + tableBytes), holds(table, plainBytes));
  if (engineInUse_)
    blocks = std::min({holds(0, namedBytes + 2 * tableBytes), holds(table, namedBytes + tableBytes), holds(names, namedBytes + tableBytes), holds(table + names, namedBytes)});
  return std::min<u64>(blocks, BlockArena::maxBlocks);
}

bool Index::evictFor(u64 blocks) {
  if (arena_.live() + blocks <= limit_) return true;
  limit_ = limitBlocks();
  if (blocks > limit_) return false;
  for (u32 i = 0; i < mostReclaims && arena_.live() + blocks > limit_ && reclaim(reclaimSlice); ++i) {
  }
  if (arena_.live() + blocks <= limit_) return true;
  // An eviction sweeps a publisher's own names and further copies completely, so it evicts more at once if there are any.
  const bool sweeps = std::any_of(subscriptions_.begin(), subscriptions_.end(), [](const Subscription& sub) { return sub.active && (sub.ownNames || sub.copies.size() > manyCopies); });
  evict(std::max<u64>(arena_.live() + blocks - limit_, sweeps ? limit_ / 16 : std::min(limit_ / 16, evictSlice)));
  return true;
}

// Sorts the pages, the oldest last, since the last one is evicted next. A use of a prefix stamps all of its pages, so a page older than
// another does not belong to its prefix. Among pages of one age the higher one goes first, since it has the deeper blocks.
bool Index::findOldest() {
  for (u32 page = 1; page < arena_.pages(); ++page)
    if (~arena_.freeBits(page) != 0) oldest_.emplace_back(arena_.stamp(page), ~page);
  // Some pages suffice: until they are evicted, others will have been used.
  const auto some = oldest_.begin() + static_cast<std::ptrdiff_t>(oldest_.size() - oldest_.size() / 16);
  if (oldest_.size() > 16) {
    std::nth_element(oldest_.begin(), some, oldest_.end(), std::greater<>());
    oldest_.erase(oldest_.begin(), some);
  }
  std::sort(oldest_.begin(), oldest_.end(), std::greater<>());
  return !oldest_.empty();
}

void Index::evict(u64 blocks) {
  u64 freed = 0;
  std::vector<u64> lost;  // the streams that lose blocks
  u32 lastSet = HolderSets::none;
  while (freed < blocks && !ghosts_.empty()) freed += releaseGhosts();
  while (freed < blocks && (!oldest_.empty() || findOldest())) {
    const auto [stamp, inverse] = oldest_.back();
    oldest_.pop_back();
    // The page was used since it was listed.
    if (arena_.stamp(~inverse) != stamp) continue;
    u32 page[BlockArena::pageBlocks], count = 0;
    for (u64 left = ~arena_.freeBits(~inverse); left != 0; left &= left - 1) {
      const u32 block = page[count++] = ~inverse * BlockArena::pageBlocks + static_cast<u32>(std::countr_zero(left));
      if (arena_.holders[block] == lastSet) continue;
      lastSet = arena_.holders[block];
      const std::vector<u64>& bits = sets_[lastSet].bits;
      if (lost.size() < bits.size()) lost.resize(bits.size());
      for (std::size_t word = 0; word < bits.size(); ++word) lost[word] |= bits[word];
    }
    releaseAll(page, count);
    freed += count;
    evicted_ += count;
  }
  for (std::size_t word = 0; word < lost.size(); ++word)
    for (u64 left = lost[word]; left != 0; left &= left - 1) subscriptions_[streams_[word * 64 + static_cast<u32>(std::countr_zero(left))].subscription].evicted = true;
  for (Subscription& sub : subscriptions_)
    if (sub.active) sweepNames(sub), sweepCopies(sub);
  shrinkTables();
  sets_.collect();
  if (liveSpaces() > firstSpaceCollection && (freedSinceSpaces_ += freed) > limit_ / 16) {
    collectSpaces();
    freedSinceSpaces_ = 0;
  }
  ++changes_;
}

}  // namespace svc
