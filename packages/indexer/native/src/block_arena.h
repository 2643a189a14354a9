// The blocks themselves: parallel arrays indexed by block number, in pages of 64; blocks of one event are neighbours.
//
//   number   64 65 66 67 …      sequence  u64  the rolling hash: names the whole prefix
//            └ a page of 64 ┘    holders   u32  which streams hold it (HolderSets), and its namespace
//                                engine    u64  the publisher's own name of it, where that differs (0: none)
//   per page: a bit per free number, and the time of its last use
//   per stretch of pages: how many have blocks; one that has none any more goes back to the system
#pragma once
#include <bit>
#include <vector>

#include "reserved.h"

namespace svc {

class BlockArena {
 public:
  static constexpr u32 pageBlocks = 64;
  static constexpr u32 maxBlocks = 0x07ffff00;

  explicit BlockArena(u32 capacity)
      : sequence(capacity + pageBlocks), holders(capacity + pageBlocks), engine(capacity + pageBlocks), capacity_(capacity), stretchBits_(capacity < 1u << 24 ? 16 : 19),
        free_(capacity / pageBlocks), stamps_(capacity / pageBlocks), stretches_((capacity >> stretchBits_) + 1) {}

  Reserved<u64> sequence;
  Reserved<u32> holders;
  Reserved<u64> engine;

  u32 capacity() const { return capacity_; }
  u32 live() const { return live_; }
  u32 end() const { return pages_ * pageBlocks; }
  u32 pages() const { return pages_; }
  bool used(u32 id) const { return id >= pageBlocks && id < end() && !(free_[id / pageBlocks] >> (id % pageBlocks) & 1); }
  u64 freeBits(u32 page) const { return free_[page]; }
  u32 stamp(u32 page) const { return stamps_[page]; }
  void setStamp(u32 page, u32 stamp) { stamps_[page] = stamp; }
  void touch(u32 id, u32 clock) { stamps_[id / pageBlocks] = clock; }

  // Returns a free number, the one after `previous` if that is free; 0 if all are taken.
  u32 allocate(u32 previous) {
    const u32 wish = previous + 1;
    if (previous != 0 && wish < end() && (free_[wish / pageBlocks] >> (wish % pageBlocks) & 1)) return take(wish);
    if (free_[cursor_] == 0 && !nextPage()) return 0;
    return take(cursor_ * pageBlocks + static_cast<u32>(std::countr_zero(free_[cursor_])));
  }

  void release(u32 id) {
    free_[id / pageBlocks] |= 1ull << (id % pageBlocks);
    holders[id] = 0;
    engine[id] = 0;
    --live_;
    if (free_[id / pageBlocks] == ~0ull) emptied(id >> stretchBits_);
  }

  // Marks a number as taken when a snapshot is loaded.
  void restore(u32 id) {
    while (end() <= id) free_[pages_++] = ~0ull;
    take(id);
  }

 private:
  u32 take(u32 id) {
    if (free_[id / pageBlocks] == ~0ull) {
      Stretch& stretch = stretches_[id >> stretchBits_];
      stretch.wasHalf |= ++stretch.pages > (1u << stretchBits_) / pageBlocks / 2;
    }
    free_[id / pageBlocks] &= ~(1ull << (id % pageBlocks));
    ++live_;
    return id;
  }
  void emptied(u32 number) {
    Stretch& stretch = stretches_[number];
    // A stretch that was never half full may fill and empty often, so it keeps its memory.
    if (--stretch.pages > 0 || !stretch.wasHalf) return;
    stretch.wasHalf = false;
    const std::size_t first = static_cast<std::size_t>(number) << stretchBits_, end = first + (std::size_t{1} << stretchBits_);
    sequence.giveBack(first, end);
    holders.giveBack(first, end);
    engine.giveBack(first, end);
  }
  // Selects a new page or, once an eighth is free, the next one with a free number.
  bool nextPage() {
    const u32 vacant = end() - pageBlocks - live_;
    const bool full = (pages_ + 1) * pageBlocks > capacity_;
    if (!full && static_cast<u64>(vacant) * 8 <= end()) {
      cursor_ = pages_;
      free_[pages_++] = ~0ull;
      return true;
    }
    if (vacant == 0) return false;
    do cursor_ = cursor_ + 1 >= pages_ ? 1 : cursor_ + 1;
    while (free_[cursor_] == 0);
    return true;
  }

  struct Stretch {
    u32 pages = 0;  // with blocks
    bool wasHalf = false;  // since its memory was allocated
  };
  u32 capacity_, stretchBits_;  // a large arena's memory comes in large pages
  Reserved<u64> free_;
  Reserved<u32> stamps_;
  std::vector<Stretch> stretches_;
  u32 pages_ = 1;  // page 0 is never used: numbers 0 and 1 have special meanings
  u32 cursor_ = 0;
  u32 live_ = 0;
};

}  // namespace svc
