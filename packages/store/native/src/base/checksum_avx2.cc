// Checksums with AVX2, which take a third less time for cached bytes.
#if defined(__x86_64__)
#include "base/checksum.h"

// Only the code below may use AVX2: the functions of the standard headers above also run on processors without it.
#pragma GCC target("avx2")
#include "base/checksum_body.h"

namespace svc::avx2 {

u64 checksumOf(const u64* ranges, std::size_t count) { return sumOfRanges(ranges, count); }
void beginSum(void* state) { ::beginSum(state); }
void addToSum(void* state, const void* data, std::size_t size) { ::addToSum(state, data, size); }
u64 endSum(const void* state) { return ::endSum(state); }

}  // namespace svc::avx2
#endif
