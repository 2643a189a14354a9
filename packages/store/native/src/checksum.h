// XXH3 of ranges of memory, by the widest instructions that this processor has.
#pragma once
#include <cstddef>

#include "base.h"

namespace svc {

// Three words a range: address, whatever, length. The ranges' bytes count as one after the other.
u64 checksumOf(const u64* ranges, std::size_t count);

namespace avx2 {
u64 checksumOf(const u64* ranges, std::size_t count);
}

}  // namespace svc
