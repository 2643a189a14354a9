// Reads a query in one pass when it is plain, as JSON or msgpack, alone or in a batch; whatever is unusual or wrong is left to query_split.h.
#pragma once
#include "json_scanner.h"
#include "msgpack_reader.h"
#include "query.h"

namespace svc {

enum class ListKind : u8 { Tokens, Hashes, Either };

struct ScannedQuery {
  Request request;  // its texts and lists live in the body and in the vectors below
  std::vector<u32> tokens;
  std::vector<u64> hashes;
  std::string_view model, tenant, salt, lora, instance;
  bool freshness = false;

  void clear();
  // Makes the request of what was read; false where a member is missing.
  bool finish(u64 blockSize, bool byHash);
};

// False: not this simple, or not right.
bool scanQuery(std::string_view body, ListKind wanted, ScannedQuery& out);
bool scanPacked(const u8* begin, const u8* end, ListKind wanted, ScannedQuery& out);

// A batch of plain queries, read one by one: each is found where the former ended.
class BatchScan {
 public:
  enum class Found : u8 { Unusual, Query, End };
  // From its first byte.
  static bool begins(const u8* body, std::size_t size, bool packed, BatchScan& out);
  // The query that comes next, and `place` behind it.
  Found next(const u8* body, std::size_t size, bool packed, ScannedQuery& out);
  u32 place = 0, read = 0, total = 0;  // where the next one begins, how many came before, and of msgpack how many there are
};

}  // namespace svc
