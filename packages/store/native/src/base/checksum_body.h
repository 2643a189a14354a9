// The checksum itself, compiled once per instruction set: the including file has selected one.
#define XXH_INLINE_ALL
#include <xxhash.h>

static_assert(sizeof(XXH3_state_t) <= svc::RunningSum::stateBytes && alignof(XXH3_state_t) <= svc::RunningSum::stateAlign);

static inline void beginSum(void* state) { XXH3_64bits_reset(static_cast<XXH3_state_t*>(state)); }
static inline void addToSum(void* state, const void* data, std::size_t size) { XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, size); }
static inline svc::u64 endSum(const void* state) { return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state)); }

static inline svc::u64 sumOfRanges(const svc::u64* range, std::size_t count) {
  const auto at = [](svc::u64 address) { return reinterpret_cast<const void*>(address); };
  if (count == 1) return XXH3_64bits(at(range[0]), range[2]);
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (std::size_t i = 0; i < count; ++i, range += 3) XXH3_64bits_update(&state, at(range[0]), range[2]);
  return XXH3_64bits_digest(&state);
}
