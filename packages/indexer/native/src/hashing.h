// The standard hashes: XXH3-64 over a block's tokens, and a rolling hash that identifies the whole prefix.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace svc {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

static_assert(std::endian::native == std::endian::little, "token bytes are hashed as they lie in memory");

inline u64 localHash(const u32* tokens, std::size_t count, u64 seed) { return XXH3_64bits_withSeed(tokens, count * 4, seed); }

inline u64 roll(u64 previous, u64 local, u64 seed) {
  const u64 both[2] = {previous, local};
  return XXH3_64bits_withSeed(both, sizeof both, seed);
}

// Some clients and publishers include LoRA and salt in the hashes, through the seed of the block hashes.
inline u64 saltedSeed(std::string_view lora, std::string_view salt, u64 seed) {
  if (!lora.empty()) seed += XXH3_64bits_withSeed(lora.data(), lora.size(), 0);
  if (!salt.empty()) seed += XXH3_64bits_withSeed(salt.data(), salt.size(), 1);
  return seed;
}

// Publishers may send small or regular numbers as hashes, but tables need all bits to differ.
inline u64 mix(u64 x) {
  x ^= x >> 32;
  x *= 0x9E3779B97F4A7C15ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 32);
}

// Mixes eight values, each with its seed; newer processors do all at once.
void mixEight(const u64* values, const u64* seeds, u64* out);

// Returns a bit for each of eight values whose low bits under `mask` equal `tag` after a shift to the left and one to the right.
u32 tagsLike(const u64* values, u32 left, u32 right, u32 tag, u32 mask);

// Counts how many of the first `most` values equal `wanted` with this set; it may read up to seven of both past the first mismatch.
u32 runLength(const u64* values, const u64* wanted, const u32* sets, u32 set, u32 most);

}  // namespace svc
