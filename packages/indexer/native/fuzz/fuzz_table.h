// See fuzz_table.cc.
#pragma once
#include <cstdint>
#include <random>

namespace svc {
// More rounds: more of its segments' splits.
bool fuzzTable(std::mt19937_64& source, std::uint64_t rounds);
}  // namespace svc
