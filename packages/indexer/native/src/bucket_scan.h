// Compares sixteen bytes with one value, and returns a bit for each.
#pragma once
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "hashing.h"

namespace svc {

#ifdef __SSE2__
// This stays in a register: the compiler's own code for bytes goes through memory, where the load waits for all earlier stores.
inline __m128i sixteenOf(u8 value) { return _mm_shuffle_epi32(_mm_cvtsi32_si128(static_cast<int>(value * 0x01010101u)), 0); }
#endif

// `at` must be aligned.
inline u32 bytesEqual(const u8* at, u8 value) {
#ifdef __SSE2__
  return static_cast<u32>(_mm_movemask_epi8(_mm_cmpeq_epi8(*reinterpret_cast<const __m128i*>(at), sixteenOf(value))));
#else
  u32 hits = 0;
  for (u32 i = 0; i < 16; ++i) hits |= at[i] == value ? 1u << i : 0;
  return hits;
#endif
}

inline u32 bytesAtMost(const u8* at, u8 value) {
#ifdef __SSE2__
  const __m128i all = *reinterpret_cast<const __m128i*>(at);
  return static_cast<u32>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(all, sixteenOf(value)), all)));
#else
  u32 hits = 0;
  for (u32 i = 0; i < 16; ++i) hits |= at[i] <= value ? 1u << i : 0;
  return hits;
#endif
}

}  // namespace svc
