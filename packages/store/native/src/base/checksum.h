// XXH3 over memory ranges, with the widest instructions that this processor has.
#pragma once
#include <cstddef>

#include "base/base.h"

namespace svc {

// Each range has three words: address, unused, length. The ranges are hashed as one concatenation.
u64 checksumOf(const u64* ranges, std::size_t count);

// The same checksum over bytes that arrive in pieces.
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
