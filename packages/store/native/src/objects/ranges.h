// Ranges of segments that belong to no object: just allocated, or cooling down after a release.
#pragma once
#include <utility>
#include <vector>

#include "objects/table.h"

namespace svc {

struct Placed {
  u32 segment, node;
};

// A free range that is cooling down. `forReaders`: the object was complete, so no writer is left, but a reader's lease may still run.
struct Cooling {
  Tick until;
  u32 segment, node;
  bool forReaders = false;
  bool operator<(const Cooling& other) const { return until > other.until; }
};

struct CoolingRange {
  u64 size = 0;
  bool forReaders = false;
};

// Hashes a segment's number and an offset.
struct RangeHash {
  std::size_t operator()(const std::pair<u32, u64>& at) const { return static_cast<std::size_t>((at.second + at.first) * 0x9E3779B97F4A7C15ull); }
};

}  // namespace svc
