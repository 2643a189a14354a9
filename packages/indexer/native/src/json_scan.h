// Reads a query's JSON body in one pass when it is plain; whatever is unusual or wrong is left to query_split.h.
#pragma once
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

}  // namespace svc
