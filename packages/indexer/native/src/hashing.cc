// Hash functions over many values at once.
#include "hashing.h"

namespace svc {

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__)
#define SVC_CLONES __attribute__((target_clones("arch=x86-64-v4", "default")))
#else
#define SVC_CLONES
#endif

SVC_CLONES void mixEight(const u64* values, const u64* seeds, u64* out) {
  for (int i = 0; i < 8; ++i) {
    u64 x = values[i] ^ seeds[i];
    x ^= x >> 32;
    x *= 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ull;
    out[i] = x ^ (x >> 32);
  }
}

SVC_CLONES u32 tagsLike(const u64* values, u32 left, u32 right, u32 tag, u32 mask) {
  u32 alike = 0;
  for (u32 i = 0; i < 8; ++i) alike |= ((((values[i] << left) >> right) ^ tag) & mask) == 0 ? 1u << i : 0;
  return alike;
}

SVC_CLONES u32 runLength(const u64* values, const u64* wanted, const u32* sets, u32 set, u32 most) {
  // The loop prefetches explicitly, since the processor's own prefetching stops at each page boundary.
  constexpr u32 ahead = 96;
  u32 length = 0;
  for (; length + 8 <= most; length += 8) {
    __builtin_prefetch(values + length + ahead);
    __builtin_prefetch(sets + length + ahead);
    u64 unlike = 0;
    for (u32 i = 0; i < 8; ++i) unlike |= (values[length + i] ^ wanted[length + i]) | (sets[length + i] ^ set);
    if (unlike != 0) break;
  }
  while (length < most && values[length] == wanted[length] && sets[length] == set) ++length;
  return length;
}

}  // namespace svc
