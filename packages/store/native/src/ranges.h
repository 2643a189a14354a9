// Ranges of segments that are no object's: just taken, given back but not free yet, and leased for an object to come.
#pragma once
#include <utility>
#include <vector>

#include "table.h"

namespace svc {

struct Placed {
  u32 segment, node;
};

// Free, but not to be given out yet. `forReaders`: the object was whole, so that nobody writes there any more, but a reader's lease goes on.
struct Held {
  Tick until;
  u32 segment, node;
  bool forReaders = false;
  bool operator<(const Held& other) const { return until > other.until; }
};

struct Extent {
  u32 client;
  u16 tenant;
  u64 size;
  Tick until;
  std::vector<Placed> ranges;
};

struct HeldRange {
  u64 size = 0;
  bool forReaders = false;
};

// By segment and offset.
struct RangeHash {
  std::size_t operator()(const std::pair<u32, u64>& at) const { return static_cast<std::size_t>((at.second + at.first) * 0x9E3779B97F4A7C15ull); }
};

}  // namespace svc
