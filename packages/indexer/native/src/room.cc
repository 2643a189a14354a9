// Taking blocks away in bulk: purges of streams, and eviction when the memory budget is reached.
#include <algorithm>

#include "index.h"

namespace svc {
namespace {

// Bytes of one block while a table is being rebuilt beside the old one: the budget holds then, too.
constexpr u64 plainBlockBytes = 32, namedBlockBytes = 52;
// What the process of indexing needs at any size: scratch, ring of ghosts, the empty tables.
constexpr u64 fixedBytes = 1 << 20;

}  // namespace

void Index::purge(const std::vector<u32>& streams, std::int64_t space) {
  if (streams.empty()) return;
  // Sets change, not blocks one by one: the new number of each set that has these streams.
  const std::size_t before = sets_.size();
  std::vector<u32> becomes(before, HolderSets::none);
  bool any = false;
  for (u32 set = 1; set < before; ++set) {
    if (sets_[set].blocks == 0 || (space >= 0 && sets_[set].space != static_cast<u32>(space))) continue;
    u32 result = set;
    for (u32 stream : streams)
      if (sets_[result].has(stream)) result = sets_.without(result, stream);
    if (result != set) {
      becomes[set] = result;
      any = true;
    }
  }
  if (any) {
    for (u32 block = BlockArena::pageBlocks; block < arena_.end(); ++block) {
      const u32 set = arena_.holders[block];
      if (set == HolderSets::none || becomes[set] == HolderSets::none) continue;
      setHolders(block, becomes[set]);
      if (sets_[becomes[set]].empty()) release(block);
    }
  }
  sweepNames(subscriptions_[streams_[streams.front()].subscription]);
  sets_.collect();
  ++changes_;
}

u64 Index::bytes() const {
  u64 total = indexBytes() + nameBytes() + sets_.bytes() + fixedBytes;
  for (const Subscription& sub : subscriptions_) total += sub.names.bytes() + sub.parkedBlocks * 24ull + sub.seen.size() * sizeof(Subscription::Seen);
  return total;
}

u64 Index::limitBlocks() const {
  const u64 other = bytes() - indexBytes() - nameBytes();
  const u64 left = budget_ > other ? budget_ - other : 0;
  return std::min<u64>(left / (engineInUse_ ? namedBlockBytes : plainBlockBytes), BlockArena::maxBlocks);
}

bool Index::makeRoom(u64 blocks) {
  if (arena_.live() + blocks <= limit_) return true;
  limit_ = limitBlocks();
  if (blocks > limit_) return false;
  if (arena_.live() + blocks > limit_) evict(std::max<u64>(arena_.live() + blocks - limit_, limit_ / 16));
  return true;
}

void Index::evict(u64 blocks) {
  u64 freed = 0;
  for (u32 ghost : ghosts_) {
    if (!arena_.used(ghost) || !sets_[arena_.holders[ghost]].empty()) continue;
    release(ghost);
    ++freed;
  }
  ghosts_.clear();
  ghostAt_ = 0;
  // Oldest first. A use of a prefix stamps all of its pages, so what is older than a page is not its prefix;
  // of one age the higher page goes first, which holds the deeper blocks.
  std::vector<std::pair<u32, u32>> pages;
  for (u32 page = 1; page < arena_.pages(); ++page)
    if (~arena_.freeBits(page) != 0) pages.emplace_back(arena_.stamp(page), ~page);
  std::sort(pages.begin(), pages.end());
  for (const auto& [stamp, page] : pages) {
    if (freed >= blocks) break;
    for (u64 left = ~arena_.freeBits(~page); left != 0; left &= left - 1) {
      release(~page * BlockArena::pageBlocks + static_cast<u32>(std::countr_zero(left)));
      ++freed;
      ++evicted_;
    }
  }
  for (Subscription& sub : subscriptions_)
    if (sub.active) sweepNames(sub);
  sets_.collect();
  ++changes_;
}

}  // namespace svc
