// Separates a query's long lists from its other members: the lists are read here, up to the first fault, and the rest stays small.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "hashing.h"

namespace svc {

struct SplitQuery {
  // The body without its lists, in its original format.
  std::vector<u8> rest;
  std::optional<std::vector<u32>> tokens;
  std::optional<std::vector<u64>> hashes, formerHashes;  // seq_hashes, block_hash
  struct Problem {
    std::string_view reason, field;
    std::int64_t index = -1;  // in the list
    std::string found;
    u64 offset = 0;  // in the body
  };
  std::optional<Problem> problem;
};

// The bound of all members except the lists.
inline constexpr std::size_t mostRestBytes = 64 * 1024;

SplitQuery splitJson(std::string_view body);
SplitQuery splitMsgpack(const u8* begin, const u8* end);

// The positions of a batch's queries.
struct SplitBatch {
  std::vector<u8> rest;
  std::vector<u32> spans;  // begin and end of the first `mostBatched`
  u64 count = 0;
  bool hasQueries = false;
  std::optional<SplitQuery::Problem> problem;
};
inline constexpr u64 mostBatched = 1024;

SplitBatch splitJsonBatch(std::string_view body);
SplitBatch splitMsgpackBatch(const u8* begin, const u8* end);

}  // namespace svc
