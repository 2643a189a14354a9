// Checksums by the instructions that every processor of this architecture has, or by wider ones where it has them.
#include "checksum.h"

#include "checksum_body.h"

namespace svc {

u64 checksumOf(const u64* ranges, std::size_t count) {
#if defined(__x86_64__)
  static const bool wide = __builtin_cpu_supports("avx2");
  if (wide) return avx2::checksumOf(ranges, count);
#endif
  return sumOfRanges(ranges, count);
}

}  // namespace svc
