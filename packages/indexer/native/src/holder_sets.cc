// Interning of holder sets and their collection.
#include "holder_sets.h"

namespace svc {

u32 HolderSets::changed(u32 set, u32 stream, bool adds) {
  std::vector<u64> bits = sets_[set].bits;
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
  sets_[id] = {space, 0, hash, std::move(bits)};
  byHash_.emplace(hash, id);
  return id;
}

void HolderSets::collect() {
  if (idle_ < idleLimit || idle_ * 2 < sets_.size() - free_.size()) return;
  idle_ = 0;
  memo_.assign(memoSize, {});
  for (auto it = byHash_.begin(); it != byHash_.end();) {
    Set& set = sets_[it->second];
    if (set.blocks > 0) {
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
  // A set, its bits, and its entry in the map with the allocator's share.
  return sets_.size() * (sizeof(Set) + 16) + words_ * 8 + byHash_.size() * 56 + memo_.size() * sizeof(Memo);
}

}  // namespace svc
