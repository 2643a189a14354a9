// The sets of streams that hold a block: each set, within one namespace, is stored once and shared by all blocks that have it.
#pragma once
#include <unordered_map>
#include <vector>

#include "hashing.h"

namespace svc {

class HolderSets {
 public:
  static constexpr u32 none = 0;  // the set of no block

  struct Set {
    u32 space = 0;  // the namespace; sets of two namespaces are never the same
    u32 blocks = 0;
    u32 forward = none;  // the set that it means since a withdrawal; its blocks move there step by step
    u32 referrers = 0;   // the number of sets that forward here
    u64 hash = 0;
    std::vector<u64> bits;
    bool empty() const { return bits.empty(); }
    bool has(u32 stream) const { return stream / 64 < bits.size() && (bits[stream / 64] >> (stream % 64) & 1); }
  };

  HolderSets() : sets_(1), memo_(memoSize) {}

  // Returns the present meaning of a number; a block's own number may be that of a withdrawn set.
  const Set& operator[](u32 id) const { return sets_[current(id)]; }
  u32 current(u32 id) const { return sets_[id].forward == none ? id : sets_[id].forward; }
  bool isStale(u32 id) const { return sets_[id].forward != none; }
  // Returns the number of blocks that carry exactly this number.
  u32 blocksOf(u32 id) const { return sets_[id].blocks; }
  // Returns the number of blocks that carry a forwarded number.
  u64 stale() const { return stale_; }
  // Removes streams from every set (of one namespace, or of all with -1); the time depends on the number of sets, not of blocks.
  void withdraw(const std::vector<u32>& streams, std::int64_t space);
  // Replaces each stream with another one, or removes it with `nowhere`; the cost is that of `withdraw`.
  struct Move {
    u32 from = 0, to = nowhere;
  };
  static constexpr u32 nowhere = ~0u;
  void move(const std::vector<Move>& moves, std::int64_t space);
  std::size_t size() const { return sets_.size(); }
  u32 emptyOf(u32 space) { return intern(space, {}); }
  u32 with(u32 set, u32 stream) { return change(set, stream, true); }
  u32 without(u32 set, u32 stream) { return change(set, stream, false); }
  // Count blocks that changed their set; `collect` may drop a set without blocks.
  void gain(u32 set, u32 blocks) { sets_[set].blocks += blocks; }
  void lose(u32 set, u32 blocks) {
    if (sets_[set].forward != none) stale_ -= blocks;
    if ((sets_[set].blocks -= blocks) == 0) ++idle_;
  }
  u32 intern(u32 space, std::vector<u64> bits);
  // Drops sets without blocks once there are many; numbers kept outside of blocks are invalid afterwards.
  void collect();
  std::size_t bytes() const;

 private:
  static constexpr u32 memoSize = 1 << 13;
  static constexpr std::size_t idleLimit = 4096;
  struct Memo {
    u32 set = 0, stream = 0, result = 0;
    bool adds = false;
  };

  u32 change(u32 set, u32 stream, bool adds) {
    Memo& memo = memo_[(set * 0x9E3779B1u ^ (stream * 2 + adds) * 0x85EBCA6Bu) >> 19];
    if (memo.set == set && memo.stream == stream && memo.adds == adds && set != none) return memo.result;
    const u32 result = changed(set, stream, adds);
    memo = {set, stream, result, adds};
    return result;
  }
  u32 changed(u32 set, u32 stream, bool adds);
  void forget(u32 set);

  std::vector<Set> sets_;
  std::vector<u32> free_;
  std::unordered_multimap<u64, u32> byHash_;
  std::vector<Memo> memo_;
  std::size_t idle_ = 0;
  std::size_t words_ = 0;
  u64 stale_ = 0;
};

}  // namespace svc
