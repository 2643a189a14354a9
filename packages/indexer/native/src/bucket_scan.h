// Which of sixteen bytes are like another one, as a bit for each.
#pragma once
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "hashing.h"

namespace svc {

// `at` is aligned.
inline u32 bytesEqual(const u8* at, u8 value) {
#ifdef __SSE2__
  return static_cast<u32>(_mm_movemask_epi8(_mm_cmpeq_epi8(*reinterpret_cast<const __m128i*>(at), _mm_set1_epi8(static_cast<char>(value)))));
#else
  u32 hits = 0;
  for (u32 i = 0; i < 16; ++i) hits |= at[i] == value ? 1u << i : 0;
  return hits;
#endif
}

inline u32 bytesAtMost(const u8* at, u8 value) {
#ifdef __SSE2__
  const __m128i all = *reinterpret_cast<const __m128i*>(at);
  return static_cast<u32>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(all, _mm_set1_epi8(static_cast<char>(value))), all)));
#else
  u32 hits = 0;
  for (u32 i = 0; i < 16; ++i) hits |= at[i] <= value ? 1u << i : 0;
  return hits;
#endif
}

}  // namespace svc
