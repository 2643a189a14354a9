// A writer's requests for a put, and its description of the bytes at the end.
#pragma once
#include <optional>
#include <string_view>
#include <vector>

#include "base/base.h"

namespace svc {

// A writer's put policy; its strings are views into the request.
struct PutPolicy {
  u64 replicas = 1, nofReplicas = 0, dfsReplicas = 0;
  u8 softPin = 0;  // 0 keep, 1 enable, 2 disable
  std::optional<u64> softPinMs;
  bool hardPin = false, sameNode = false;
  u8 dataType = 0;
  std::string_view hostID;
  std::vector<std::string_view> preferred, preferredNof;
  std::vector<std::string_view> avoided;  // endpoints that its writer could not reach
};

// Properties of the bytes that a writer gives once they are written.
struct Ended {
  std::optional<u64> checksum;
  std::string_view fingerprint;
};

}  // namespace svc
