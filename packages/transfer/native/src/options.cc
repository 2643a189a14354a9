// One table of options, used by the environment and setOption().
#include "options.h"

#include <charconv>
#include <cstdlib>
#include <variant>

#include "base.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {

using Member = std::variant<std::string Options::*, uint64_t Options::*, bool Options::*>;
struct Row {
  const char* name;
  Member member;
  uint64_t least = 0, most = ~0ull;
};

constexpr uint64_t DAY_MS = 86'400'000;
const Row rows[] = {
    {"brand", &Options::brand},
    {"cluster_id", &Options::clusterID},
    {"bind_address", &Options::bindAddress},
    {"min_rpc_port", &Options::minRpcPort, 1, 65535},
    {"max_rpc_port", &Options::maxRpcPort, 1, 65535},
    {"transfer_timeout_ms", &Options::transferTimeoutMs, 1, DAY_MS},
    {"connect_timeout_ms", &Options::connectTimeoutMs, 1, 3'599'000},
    {"lanes_per_peer", &Options::lanesPerPeer, 1, 16},
    {"sync_connections_per_peer", &Options::syncConnectionsPerPeer, 1, 1024},
    {"heartbeat_ms", &Options::heartbeatMs, 0, DAY_MS},
    {"lease_ms", &Options::leaseMs, 0, DAY_MS},
    {"max_queued_pieces", &Options::maxQueuedRequests, 1, 1 << 28},
    {"poll_us", &Options::pollUs, 0, 1000},
    {"io_threads", &Options::ioThreads, 0, 64},
    {"max_notifies", &Options::maxNotifies, 1, 1 << 24},
    {"fabric_provider", &Options::fabricProvider},
    {"file_sync", &Options::fileSync},
    {"redis_username", &Options::redisUsername},
    {"redis_password", &Options::redisPassword},
    {"redis_database", &Options::redisDatabase, 0, 255},
    {"process_vm", &Options::processVm},
    {"log_level", &Options::logLevel, 0, 2},
};

int refuse(std::string_view name, std::string_view value, const std::string& wanted) {
  return failWith(ERR_INVALID_ARGUMENT, "option " + std::string(name) + ": found \"" + std::string(value) + "\", expected " + wanted);
}

}  // namespace

int Options::set(std::string_view name, std::string_view value) {
  for (const Row& row : rows) {
    if (row.name != name) continue;
    if (auto* text = std::get_if<std::string Options::*>(&row.member)) {
      if (name == "file_sync" && value != "none" && value != "data") return refuse(name, value, "none or data");
      if (name == "brand" && (value.empty() || value.find('/') != value.npos)) return refuse(name, value, "a word without a slash");
      this->**text = std::string(value);
      return 0;
    }
    if (auto* truth = std::get_if<bool Options::*>(&row.member)) {
      if (value != "true" && value != "false" && value != "1" && value != "0") return refuse(name, value, "true or false");
      this->**truth = value == "true" || value == "1";
      return 0;
    }
    uint64_t number = 0;
    auto [rest, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || rest != value.data() + value.size() || number < row.least || number > row.most)
      return refuse(name, value, "a number from " + std::to_string(row.least) + " to " + std::to_string(row.most));
    this->*std::get<uint64_t Options::*>(row.member) = number;
    if (name == "log_level") setLogLevel(LogLevel(number));
    return 0;
  }
  return failWith(ERR_INVALID_ARGUMENT, "there is no option " + std::string(name));
}

int Options::readEnvironment() {
  for (const Row& row : rows) {
    std::string variable = "SVC_TRANSFER_";
    for (const char* c = row.name; *c != 0; c++) variable += char(*c >= 'a' && *c <= 'z' ? *c - 32 : *c);
    const char* value = getenv(variable.c_str());
    if (value == nullptr || *value == 0) continue;
    if (int code = set(row.name, value); code != 0) return failWith(code, "environment variable " + variable + ": " + lastError());
  }
  return 0;
}

}  // namespace svc
