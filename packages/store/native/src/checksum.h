// XXH3 of ranges of memory, by the widest instructions that this processor has.
#pragma once
#include <cstddef>

#include "base.h"

namespace svc {

// Three words a range: address, whatever, length. The ranges' bytes count as one after the other.
u64 checksumOf(const u64* ranges, std::size_t count);

// The same of bytes that come one piece after the other.
class RunningSum {
 public:
  static constexpr std::size_t stateBytes = 640, stateAlign = 64;
  RunningSum();
  void add(const void* data, std::size_t size);
  u64 value() const;

 private:
  alignas(stateAlign) unsigned char state_[stateBytes];
};

namespace avx2 {
u64 checksumOf(const u64* ranges, std::size_t count);
void beginSum(void* state);
void addToSum(void* state, const void* data, std::size_t size);
u64 endSum(const void* state);
}

}  // namespace svc
