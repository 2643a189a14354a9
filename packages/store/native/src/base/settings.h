// The core's settings at its start; config/default.toml explains each.
#pragma once
#include <string>

#include "base/base.h"

namespace svc {

#define SVC_STRATEGIES(each) each(random, "random") each(freeRatioFirst, "free_ratio_first") each(localFirst, "local_first")
enum class Strategy : u8 { SVC_STRATEGIES(SVC_VALUE) };
inline constexpr const char* strategyNames[] = {SVC_STRATEGIES(SVC_NAME)};

struct Settings {
  u64 leaseMs = 10'000, softPinMs = 1'800'000, maxSoftPinMs = 86'400'000;
  bool evictSoftPinned = true;
  double evictionRatio = 0.05, highWatermark = 0.90;
  u64 clientTtlMs = 10'000, suspectMs = 2'500, discardMs = 30'000, releaseMs = 600'000, taskTimeoutMs = 300'000;
  // How long a put that finds no space waits for an eviction, an unfinished put or a lease to end.
  u64 putWaitMs = 100;
  Strategy strategy = Strategy::random;
  // The most memory that clients may lease ahead in total, as a share of all memory.
  double aheadRatio = 0.05;
  bool multiTenant = false;
  // Clients' disks: whether they take objects, at each put or instead of an eviction, and what is promoted from them.
  bool offload = false, offloadOnEvict = false, offloadForceEvict = false, promoteOnHit = false;
  double offloadCapRatio = 0.5;
  // The folder that clients share, empty for none; `folderEvicts`: the oldest files are evicted when it is full.
  std::string folder;
  bool folderEvicts = true;
  // NVMe over Fabrics: whether clients may mount such segments, and when objects are evicted from them.
  bool nof = false;
  double nofEvictionRatio = 0.05, nofHighWatermark = 0.90;
  u32 offloadQueue = 50'000, promoteThreshold = 2, promoteAtOnce = 1, promoteQueue = 50'000;
};

}  // namespace svc
