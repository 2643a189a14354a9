// Reads a plain query in one pass, as JSON or msgpack, alone or in a batch; unusual or wrong bodies are left to query_split.h.
#pragma once
#include "json_scanner.h"
#include "msgpack_reader.h"
#include "query.h"

namespace svc {

enum class ListKind : u8 { Tokens, Hashes, Either };

struct ScannedQuery {
  Request request;  // its texts and lists are in the body and in the vectors below
  std::vector<u32> tokens;
  std::vector<u64> hashes;
  std::string_view model, tenant, salt, lora, instance;
  bool freshness = false;

  void clear();
  // Makes the request from the members that were read; returns false if one is missing.
  bool finish(u64 blockSize, bool byHash);
};

// Returns false if the query is not this simple, or not valid.
bool scanQuery(std::string_view body, ListKind wanted, ScannedQuery& out);
bool scanPacked(const u8* begin, const u8* end, ListKind wanted, ScannedQuery& out);

// A batch of plain queries, read one by one: each begins where the former one ended.
class BatchScan {
 public:
  enum class Found : u8 { Unusual, Query, End };
  // Reads the beginning of the body.
  static bool begins(const u8* body, std::size_t size, bool packed, BatchScan& out);
  // Reads the next query, and moves `place` past it.
  Found next(const u8* body, std::size_t size, bool packed, ScannedQuery& out);
  u32 place = 0, read = 0, total = 0;  // where the next query begins, how many came before, and for msgpack how many there are
};

}  // namespace svc
