// See fuzz_table.cc and fuzz_memory.cc.
#pragma once
#include <cstdint>
#include <random>

namespace svc {

// The first `left` allocations succeed, then `most` fail, then all succeed.
struct Allocations {
  std::uint64_t left = ~0ull, most = 0;
};
extern Allocations allocations;

// More rounds cause more splits of the table's segments.
bool fuzzTable(std::mt19937_64& source, std::uint64_t rounds);
// Tests the index while allocations fail.
bool fuzzMemory(std::mt19937_64& source);

}  // namespace svc
