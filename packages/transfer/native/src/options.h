// The settings of one engine: names, defaults, and the environment that overrides them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace svc {

struct Options {
  std::string brand = "svc";
  std::string clusterID;
  std::string bindAddress;
  uint64_t minRpcPort = 15000, maxRpcPort = 17000;
  uint64_t transferTimeoutMs = 30'000;
  uint64_t connectTimeoutMs = 5'000;
  uint64_t lanesPerPeer = 2;
  uint64_t syncConnectionsPerPeer = 64;
  uint64_t heartbeatMs = 5'000;
  uint64_t leaseMs = 20'000;
  uint64_t maxQueuedRequests = 1 << 20;
  /** How long a thread spins for an answer or the next request before it sleeps; 0 means that it sleeps at once. */
  uint64_t pollUs = 50;
  uint64_t maxNotifies = 65'536;
  /** The number of threads that serve peers; 0 means one per two cores. */
  uint64_t ioThreads = 0;
  std::string fabricProvider;
  std::string fileSync = "none";
  std::string redisUsername, redisPassword;
  uint64_t redisDatabase = 0;
  bool processVm = true;
  uint64_t logLevel = 1;

  /** Returns 0, or -1 with lastError() naming the option and its expected values. */
  int set(std::string_view name, std::string_view value);
  /** Reads SVC_TRANSFER_<NAME> for every option; a bad value is an error that names the variable. */
  int readEnvironment();
};

}  // namespace svc
