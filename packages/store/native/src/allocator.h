// Where the bytes of a segment are free: byte-granular ranges whose bookkeeping lies here, never in the segment itself.
#pragma once
#include <array>
#include <utility>
#include <vector>

#include "pool.h"

namespace svc {

//  offset 0                                              capacity
//  | used node | free node | used node | ... | free node |
//  Nodes are in the order of their offsets (before, after); a size is the distance to the next one. Free nodes also hang in the
//  list of their bin, used ones carry `inUse` in its place. Two free nodes are never neighbours, but for the last one: its bytes were
//  never given out, so no page of them may be there yet, and they are taken only where nothing else fits.
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

  // A node of exactly `size` bytes, or 0.
  u32 take(u64 size);
  // That range and no other, or 0. It is looked for from where the last one was, so ranges are named in the order of their offsets.
  u32 takeAt(u64 offset, u64 size);
  void give(u32 node);
  u64 sizeOf(u32 node) const { return (nodes_[node].after == 0 ? capacity_ : nodes_[nodes_[node].after].offset) - nodes_[node].offset; }
  u64 offsetOf(u32 node) const { return nodes_[node].offset; }
  u64 used() const { return used_; }
  u64 capacity() const { return capacity_; }

  // Puts ranges in use that were known before: nodes with their offsets set, and their sizes. Those that lie outside or across another
  // one are left out and returned. Only before anything was taken.
  std::vector<u32> restore(std::vector<std::pair<u32, u64>>& ranges);

  // For tests: whether the order, the bins and the sums hold.
  bool sound() const;

 private:
  static constexpr u32 inUse = ~u32{0};
  // Sixteen bins for each power of two: what is left over within one is at most a sixteenth.
  static constexpr u32 binCount = 16 + 60 * 16, probes = 16, steps = 4'096;
  static u32 binOf(u64 size);
  u32 fit(u64 size) const;
  void link(u32 node);
  void unlink(u32 node);
  u32 nextBin(u32 from) const;
  // The first `size` bytes of a free node; the rest of it stays free.
  u32 cut(u32 node, u64 size);
  // Joins the untouched end with the free node before it.
  void widen();

  Pool<Node>& nodes_;
  u64 capacity_, used_ = 0;
  u32 first_ = 0, fresh_ = 0, cursor_ = 0;  // `fresh_`: the untouched end, or 0; `cursor_`: where takeAt looked last
  std::array<u32, binCount> heads_{};
  std::array<u64, (binCount + 63) / 64> filled_{};
};

}  // namespace svc
