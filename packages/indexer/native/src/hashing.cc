// Hashes in numbers.
#include "hashing.h"

namespace svc {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("arch=skylake-avx512", "default")))
#endif
void mixEight(const u64* values, const u64* seeds, u64* out) {
  for (int i = 0; i < 8; ++i) {
    u64 x = values[i] ^ seeds[i];
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ull;
    out[i] = x ^ (x >> 32);
  }
}

}  // namespace svc
