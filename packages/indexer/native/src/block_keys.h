// Gives the tables the hashes of a group of neighbouring blocks, which their entries do not contain completely.
#pragma once
#include "index.h"

namespace svc {

template <bool byName>
class BlockKeys {
 public:
  explicit BlockKeys(const Index& index) : index_(index), values_(byName ? index.arena_.engine.data() : index.arena_.sequence.data()) {}
  [[gnu::always_inline]] void prefetch(u32 group) const {
    __builtin_prefetch(&values_[group]);
    __builtin_prefetch(&index_.arena_.holders[group]);
  }
  // Returns a bit for each block of the group that is in use.
  u32 ofGroup(u32 group, u64* keys) {
    const u32* const holders = &index_.arena_.holders[group];
    u32 used = 0, others = 0;
    for (u32 i = 0; i < IdTable::groupBlocks; ++i) {
      used |= holders[i] != HolderSets::none && (!byName || values_[group + i] != 0) ? 1u << i : 0;
      others |= holders[i] ^ set_;
    }
    u64 seeds[IdTable::groupBlocks];
    for (u32 i = 0; i < IdTable::groupBlocks; ++i) {
      if (others != 0) choose(holders[i]);
      seeds[i] = seed_;
    }
    mixEight(values_ + group, seeds, keys);
    return used;
  }

 private:
  // Neighbours mostly share one holder set, so it is looked up once.
  void choose(u32 set) {
    if (set == set_ || set == HolderSets::none) return;
    set_ = set;
    const u32 space = index_.sets_[set].space;
    seed_ = byName ? index_.scopes_[space] : index_.spaces_[space].seed;
  }
  const Index& index_;
  const u64* values_;
  u32 set_ = HolderSets::none;
  u64 seed_ = 0;
};

}  // namespace svc
