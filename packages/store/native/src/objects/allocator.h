// Free and used ranges of a segment, byte-granular; the bookkeeping is kept here and never in the segment itself.
#pragma once
#include <array>
#include <utility>
#include <vector>

#include "base/pool.h"

namespace svc {

//  offset 0                                              capacity
//  | used node | free node | used node | ... | free node |
//  Nodes are in the order of their offsets (before, after); a node's size is the distance to the next one. Free nodes are also linked in
//  the list of their bin; used ones have `inUse` in binBefore. Two free nodes are never adjacent, except that the last node may follow a
//  free one: its bytes were never allocated, so their pages may not be resident yet, and they are used only if nothing else fits.
struct Node {
  u64 offset;
  u32 before, after;
  u32 binBefore, binAfter;
};

class Allocator {
 public:
  Allocator(Pool<Node>& nodes, u64 capacity);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Returns a node of exactly `size` bytes, or 0.
  u32 take(u64 size);
  // Returns exactly that range, or 0. The search starts where the last one ended, so callers should pass ranges in ascending order.
  u32 takeAt(u64 offset, u64 size);
  void give(u32 node);
  u64 sizeOf(u32 node) const { return (nodes_[node].after == 0 ? capacity_ : nodes_[nodes_[node].after].offset) - nodes_[node].offset; }
  u64 offsetOf(u32 node) const { return nodes_[node].offset; }
  u64 used() const { return used_; }
  u64 capacity() const { return capacity_; }

  // Marks known ranges as used: `ranges` has nodes with their offsets set, and their sizes. Returns the nodes that overlap another or leave
  // the segment. It must be called before anything is allocated.
  std::vector<u32> restore(std::vector<std::pair<u32, u64>>& ranges);

  // For tests: checks the order, the bins and the sums.
  bool sound() const;

 private:
  static constexpr u32 inUse = ~u32{0};
  // There are sixteen bins for each power of two, so sizes within one bin differ by at most a sixteenth.
  static constexpr u32 binCount = 16 + 60 * 16, probes = 16, steps = 4'096;
  static u32 binOf(u64 size);
  u32 fit(u64 size) const;
  void link(u32 node);
  void unlink(u32 node);
  u32 nextBin(u32 from) const;
  // Takes the first `size` bytes of a free node; the rest stays free.
  u32 cut(u32 node, u64 size);
  // Merges the never-used end with the free node before it.
  void widen();

  Pool<Node>& nodes_;
  u64 capacity_, used_ = 0;
  u32 first_ = 0, fresh_ = 0, cursor_ = 0;  // `fresh_`: the never-used end, or 0; `cursor_`: where takeAt searched last
  std::array<u32, binCount> heads_{};
  std::array<u64, (binCount + 63) / 64> filled_{};
};

}  // namespace svc
