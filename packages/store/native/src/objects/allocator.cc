// Allocates, frees and merges ranges in constant time, with bins of similar sizes.
#include "objects/allocator.h"

#include <algorithm>

namespace svc {

Allocator::Allocator(Pool<Node>& nodes, u64 capacity) : nodes_(nodes), capacity_(capacity) {
  first_ = fresh_ = nodes_.take();
  if (first_ == 0) throw std::bad_alloc();
  cursor_ = first_;
}

Allocator::~Allocator() {
  for (u32 node = first_; node != 0;) {
    const u32 after = nodes_[node].after;
    nodes_.give(node);
    node = after;
  }
}

u32 Allocator::binOf(u64 size) {
  if (size < 16) return static_cast<u32>(size);
  const u32 power = 63 - static_cast<u32>(std::countl_zero(size));
  return (power - 3) * 16 + static_cast<u32>((size >> (power - 4)) & 15);
}

u32 Allocator::nextBin(u32 from) const {
  u32 word = from / 64;
  if (word >= filled_.size()) return binCount;
  u64 bits = filled_[word] & (~u64{0} << (from % 64));
  while (bits == 0) {
    if (++word >= filled_.size()) return binCount;
    bits = filled_[word];
  }
  return word * 64 + static_cast<u32>(std::countr_zero(bits));
}

u32 Allocator::fit(u64 size) const {
  const u32 bin = binOf(size);
  // Some ranges in its own bin are too small; checking a few of them lets a nearly full segment be filled.
  u32 seen = 0;
  for (u32 node = heads_[bin]; node != 0 && seen < probes; node = nodes_[node].binAfter, ++seen)
    if (sizeOf(node) >= size) return node;
  const u32 larger = nextBin(bin + 1);
  return larger >= binCount ? 0 : heads_[larger];
}

u32 Allocator::take(u64 size) {
  if (size == 0 || size > capacity_ - used_) return 0;
  if (const u32 node = fit(size); node != 0) return cut(node, size);
  if (fresh_ == 0) return 0;
  if (sizeOf(fresh_) < size) widen();
  return sizeOf(fresh_) < size ? 0 : cut(fresh_, size);
}

u32 Allocator::cut(u32 node, u64 size) {
  u32 rest = 0;
  if (sizeOf(node) > size && (rest = nodes_.take()) == 0) return 0;
  if (node != fresh_) unlink(node);
  if (rest != 0) {
    Node& here = nodes_[node];
    nodes_[rest] = {here.offset + size, node, here.after, 0, 0};
    if (here.after != 0) nodes_[here.after].before = rest;
    here.after = rest;
    if (node != fresh_) link(rest);
  }
  if (node == fresh_) fresh_ = rest;
  nodes_[node].binBefore = inUse;
  used_ += size;
  return node;
}

void Allocator::widen() {
  const u32 before = nodes_[fresh_].before;
  if (before == 0 || nodes_[before].binBefore == inUse) return;
  unlink(before);
  nodes_[before].after = 0;
  if (cursor_ == fresh_) cursor_ = before;
  nodes_.give(fresh_);
  fresh_ = before;
}

void Allocator::give(u32 node) {
  used_ -= sizeOf(node);
  nodes_[node].binBefore = 0;
  const u32 after = nodes_[node].after;
  if (after != 0 && after != fresh_ && nodes_[after].binBefore != inUse) {
    unlink(after);
    const u32 next = nodes_[after].after;
    nodes_[node].after = next;
    if (next != 0) nodes_[next].before = node;
    if (cursor_ == after) cursor_ = node;
    nodes_.give(after);
  }
  const u32 before = nodes_[node].before;
  if (before != 0 && nodes_[before].binBefore != inUse) {
    unlink(before);
    const u32 next = nodes_[node].after;
    nodes_[before].after = next;
    if (next != 0) nodes_[next].before = before;
    if (cursor_ == node) cursor_ = before;
    nodes_.give(node);
    node = before;
  }
  link(node);
}

u32 Allocator::takeAt(u64 offset, u64 size) {
  if (size == 0 || offset > capacity_ || size > capacity_ - offset) return 0;
  u32& node = cursor_;
  for (u32 seen = 0; nodes_[node].offset > offset || nodes_[node].offset + sizeOf(node) <= offset; ++seen) {
    const u32 next = nodes_[node].offset > offset ? nodes_[node].before : nodes_[node].after;
    if (next == 0 || seen == steps) return 0;
    node = next;
  }
  if (nodes_[node].binBefore == inUse) return 0;
  if (fresh_ != 0 && (node == fresh_ || nodes_[node].after == fresh_)) {
    widen();
    node = fresh_;
  }
  const u64 lead = offset - nodes_[node].offset, had = sizeOf(node);
  if (lead > had || size > had - lead) return 0;
  const u32 found = node, mine = lead > 0 ? nodes_.take() : found, rest = had - lead > size ? nodes_.take() : 0;
  if (mine == 0 || (rest == 0 && had - lead > size)) {
    if (mine != 0 && mine != found) nodes_.give(mine);
    return 0;
  }
  const bool isFresh = found == fresh_;
  if (!isFresh) unlink(found);
  const auto splitAt = [&](u32 left, u32 right, u64 at) {
    const u32 after = nodes_[left].after;
    nodes_[right] = {at, left, after, 0, 0};
    if (after != 0) nodes_[after].before = right;
    nodes_[left].after = right;
  };
  if (mine != found) splitAt(found, mine, offset);
  if (rest != 0) splitAt(mine, rest, offset + size);
  if (mine != found) link(found);
  if (isFresh) fresh_ = rest;
  else if (rest != 0) link(rest);
  nodes_[mine].binBefore = inUse;
  used_ += size;
  return mine;
}

void Allocator::link(u32 node) {
  const u32 bin = binOf(sizeOf(node));
  nodes_[node].binBefore = 0;
  nodes_[node].binAfter = heads_[bin];
  if (heads_[bin] != 0) nodes_[heads_[bin]].binBefore = node;
  heads_[bin] = node;
  filled_[bin / 64] |= u64{1} << (bin % 64);
}

void Allocator::unlink(u32 node) {
  const u32 bin = binOf(sizeOf(node));
  const Node& here = nodes_[node];
  if (here.binBefore != 0) nodes_[here.binBefore].binAfter = here.binAfter;
  else heads_[bin] = here.binAfter;
  if (here.binAfter != 0) nodes_[here.binAfter].binBefore = here.binBefore;
  if (heads_[bin] == 0) filled_[bin / 64] &= ~(u64{1} << (bin % 64));
}

std::vector<u32> Allocator::restore(std::vector<std::pair<u32, u64>>& ranges) {
  std::vector<u32> left;
  std::sort(ranges.begin(), ranges.end(), [&](const auto& a, const auto& b) { return nodes_[a.first].offset < nodes_[b.first].offset; });
  nodes_.give(first_);
  first_ = fresh_ = 0;
  u32 last = 0;
  u64 at = 0;
  const auto append = [&](u32 node) {
    nodes_[node].before = last;
    nodes_[node].after = 0;
    if (last == 0) first_ = node;
    else nodes_[last].after = node;
    last = node;
  };
  std::vector<u32> gaps;
  const auto gapUntil = [&](u64 offset) {
    if (offset == at) return;
    const u32 gap = nodes_.take();
    if (gap == 0) throw std::bad_alloc();
    nodes_[gap].offset = at;
    append(gap);
    gaps.push_back(gap);
  };
  for (const auto& [node, size] : ranges) {
    const u64 offset = nodes_[node].offset;
    if (size == 0 || offset < at || offset > capacity_ || size > capacity_ - offset) {
      left.push_back(node);
      continue;
    }
    gapUntil(offset);
    append(node);
    nodes_[node].binBefore = inUse;
    used_ += size;
    at = offset + size;
  }
  gapUntil(capacity_);
  // Space after the last range counts as never used.
  if (last != 0 && !gaps.empty() && gaps.back() == last) {
    fresh_ = last;
    gaps.pop_back();
  }
  cursor_ = first_;
  for (const u32 gap : gaps) link(gap);
  return left;
}

bool Allocator::sound() const {
  u64 used = 0, at = 0;
  u32 before = 0, freeNodes = 0, listed = 0;
  bool wasFree = false;
  for (u32 node = first_; node != 0; before = node, node = nodes_[node].after) {
    const Node& here = nodes_[node];
    const bool isFree = here.binBefore != inUse;
    if (here.offset != at || here.before != before || (isFree && wasFree && node != fresh_) || sizeOf(node) == 0) return false;
    if (node == fresh_ && (!isFree || here.after != 0)) return false;
    if (isFree) freeNodes += node != fresh_;
    else used += sizeOf(node);
    at += sizeOf(node);
    wasFree = isFree;
  }
  for (u32 bin = 0; bin < binCount; ++bin) {
    if ((heads_[bin] != 0) != ((filled_[bin / 64] >> (bin % 64) & 1) != 0)) return false;
    for (u32 node = heads_[bin]; node != 0; node = nodes_[node].binAfter) {
      if (nodes_[node].binBefore == inUse || binOf(sizeOf(node)) != bin) return false;
      ++listed;
    }
  }
  return at == capacity_ && used == used_ && freeNodes == listed;
}

}  // namespace svc
