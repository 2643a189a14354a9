// What the core is told at its start; config/default.toml explains each.
#pragma once
#include "base.h"

namespace svc {

enum class Strategy : u8 { random = 0, freeRatioFirst = 1, localFirst = 2 };

struct Settings {
  u64 leaseMs = 10'000, softPinMs = 1'800'000, maxSoftPinMs = 86'400'000;
  bool evictSoftPinned = true;
  double evictionRatio = 0.05, highWatermark = 0.90;
  u64 clientTtlMs = 10'000, suspectMs = 2'500, discardMs = 30'000, releaseMs = 600'000, taskTimeoutMs = 300'000;
  Strategy strategy = Strategy::random;
  bool multiTenant = false;
};

}  // namespace svc
