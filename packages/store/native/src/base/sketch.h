// A count-min sketch of how often keys were read recently: its memory is bounded, counts are never too low, and they halve over time.
#pragma once
#include <algorithm>
#include <array>

#include "base/base.h"

namespace svc {

class Sketch {
 public:
  // Counts one read; returns the count.
  u32 add(u64 hash) {
    if (++added_ == halveAfter) halve();
    u8 least = 255;
    for (u32 row = 0; row < rows; ++row) {
      u8& count = counts_[row][(hash >> (row * 13)) % columns];
      if (count < 255) ++count;
      least = std::min(least, count);
    }
    return least;
  }

 private:
  static constexpr u32 rows = 4, columns = 1 << 13, halveAfter = columns * 4;
  void halve() {
    added_ = 0;
    for (auto& row : counts_)
      for (u8& count : row) count = static_cast<u8>(count / 2);
  }
  std::array<std::array<u8, columns>, rows> counts_{};
  u32 added_ = 0;
};

}  // namespace svc
