// Interns holder sets and collects unused ones.
#include "holder_sets.h"

namespace svc {

u32 HolderSets::changed(u32 set, u32 stream, bool adds) {
  std::vector<u64> bits = (*this)[set].bits;
  const std::size_t word = stream / 64;
  if (adds) {
    if (bits.size() <= word) bits.resize(word + 1);
    bits[word] |= 1ull << (stream % 64);
  } else if (word < bits.size()) {
    bits[word] &= ~(1ull << (stream % 64));
  }
  return intern(sets_[set].space, std::move(bits));
}

u32 HolderSets::intern(u32 space, std::vector<u64> bits) {
  while (!bits.empty() && bits.back() == 0) bits.pop_back();
  const u64 hash = XXH3_64bits_withSeed(bits.data(), bits.size() * 8, space);
  const auto [from, to] = byHash_.equal_range(hash);
  for (auto it = from; it != to; ++it) {
    const Set& set = sets_[it->second];
    if (set.space == space && set.bits == bits) return it->second;
  }
  u32 id = 0;
  if (free_.empty()) {
    id = static_cast<u32>(sets_.size());
    sets_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  words_ += bits.size();
  sets_[id] = {space, 0, none, 0, hash, std::move(bits)};
  byHash_.emplace(hash, id);
  return id;
}

void HolderSets::forget(u32 set) {
  const auto [from, to] = byHash_.equal_range(sets_[set].hash);
  for (auto it = from; it != to; ++it) {
    if (it->second != set) continue;
    byHash_.erase(it);
    return;
  }
}

void HolderSets::withdraw(const std::vector<u32>& streams, std::int64_t space) {
  std::vector<Move> moves;
  for (const u32 stream : streams) moves.push_back({stream, nowhere});
  move(moves, space);
}

void HolderSets::move(const std::vector<Move>& moves, std::int64_t space) {
  const u32 before = static_cast<u32>(sets_.size());
  std::vector<u32> becomes(before, none);
  bool any = false;
  for (u32 set = 1; set < before; ++set) {
    const Set& known = sets_[set];
    if (known.forward != none || (known.blocks == 0 && known.referrers == 0) || (space >= 0 && known.space != static_cast<u32>(space))) continue;
    u32 result = set;
    for (const Move& one : moves) {
      if (!sets_[result].has(one.from)) continue;
      result = changed(result, one.from, false);
      if (one.to != nowhere) result = changed(result, one.to, true);
    }
    if (result == set) continue;
    becomes[set] = result;
    any = true;
  }
  if (!any) return;
  memo_.assign(memoSize, {});
  for (u32 set = 1; set < before; ++set) {
    const bool was = sets_[set].forward != none;
    const u32 meant = was ? sets_[set].forward : set;
    const u32 target = meant < before ? becomes[meant] : none;
    if (target == none) continue;
    if (!was) {
      forget(set);
      stale_ += sets_[set].blocks;
      words_ -= sets_[set].bits.size();
      sets_[set].bits = {};
    }
    sets_[set].forward = target;
    ++sets_[target].referrers;
  }
  // Sets that forwarded to a withdrawn set now forward past it.
  for (u32 set = 1; set < before; ++set)
    if (becomes[set] != none) sets_[set].referrers = 0;
}

void HolderSets::collect() {
  if (idle_ < idleLimit || idle_ * 2 < sets_.size() - free_.size()) return;
  idle_ = 0;
  memo_.assign(memoSize, {});
  for (u32 id = 1; id < sets_.size(); ++id) {
    Set& set = sets_[id];
    if (set.blocks > 0 || set.forward == none) continue;
    --sets_[set.forward].referrers;
    set = {};
    free_.push_back(id);
  }
  for (auto it = byHash_.begin(); it != byHash_.end();) {
    Set& set = sets_[it->second];
    if (set.blocks > 0 || set.referrers > 0) {
      ++it;
      continue;
    }
    words_ -= set.bits.size();
    set = {};
    free_.push_back(it->second);
    it = byHash_.erase(it);
  }
}

std::size_t HolderSets::bytes() const {
  // Counts a set, its bits, and its entry in the map with the allocator's overhead.
  return sets_.size() * (sizeof(Set) + 16) + words_ * 8 + byHash_.size() * 56 + memo_.size() * sizeof(Memo);
}

}  // namespace svc
