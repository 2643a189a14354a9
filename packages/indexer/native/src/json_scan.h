// Reads a query's JSON body in one pass when it is plain; whatever is unusual or wrong is left to the careful reader in TypeScript.
#pragma once
#include "query.h"

namespace svc {

struct ScannedQuery {
  Request request;  // its texts and lists live in the body and in the vectors below
  std::vector<u32> tokens;
  std::vector<u64> hashes;
  std::string_view model, tenant, salt, lora, instance;
};

// False: not this simple, or not right.
bool scanQuery(std::string_view body, bool byHash, ScannedQuery& out);

}  // namespace svc
