// Checksums by AVX2: a third less time for bytes that lie in a cache.
#if defined(__x86_64__)
#include "checksum.h"

// From here on: what the standard headers define stays as it is for every processor.
#pragma GCC target("avx2")
#include "checksum_body.h"

namespace svc::avx2 {

u64 checksumOf(const u64* ranges, std::size_t count) { return sumOfRanges(ranges, count); }
void beginSum(void* state) { ::beginSum(state); }
void addToSum(void* state, const void* data, std::size_t size) { ::addToSum(state, data, size); }
u64 endSum(const void* state) { return ::endSum(state); }

}  // namespace svc::avx2
#endif
