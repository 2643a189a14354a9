// See fuzz_table.cc and fuzz_memory.cc.
#pragma once
#include <cstdint>
#include <random>

namespace svc {

// The first `left` are had, then `most` are not, then all are.
struct Allocations {
  std::uint64_t left = ~0ull, most = 0;
};
extern Allocations allocations;

// More rounds: more of its segments' splits.
bool fuzzTable(std::mt19937_64& source, std::uint64_t rounds);
// The index while allocations fail.
bool fuzzMemory(std::mt19937_64& source);

}  // namespace svc
