// Start and stop of an engine: ports, identity, transports, heartbeat.
#include <sys/resource.h>

#include <random>

#include "engine.h"
#include "topology.h"

namespace svc {

namespace {
/** The time transfers in flight have to fail when the engine stops. */
constexpr uint64_t STOP_WAIT_MS = 5000;

std::string timeStamp() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char text[40];
  size_t length = strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc);
  snprintf(text + length, sizeof text - length, ".%06ld", now.tv_nsec / 1000);
  return text;
}
}  // namespace

Engine::Engine(bool discover, std::vector<std::string> list) : autoDiscover(discover), filters(std::move(list)) {}

int Engine::init(const std::string& connection, const std::string& localName, const std::string& host, uint64_t rpcPort) {
  if (started_ || stopping_) return failWith(ERR_INVALID_ARGUMENT, "init: this engine is " + std::string(stopping_ ? "freed" : "initialized already"));
  if (localName.empty()) return failWith(ERR_INVALID_ARGUMENT, "init: local_server_name is empty");
  if (rpcPort > 65535) return failWith(ERR_INVALID_ARGUMENT, "init: rpc_port " + std::to_string(rpcPort) + " is above 65535");
  if (int code = options.readEnvironment(); code != 0) return code;
  handshake_ = isHandshake(connection);
  if (!handshake_ && !(store_ = openMetadataStore(connection, options))) return ERR_METADATA;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  host_ = !host.empty() ? host : options.bindAddress;
  if (host_.empty() && handshake_) {
    // Mooncake ignores the port in the name and takes rpc_port instead, so we do the same.
    auto parts = splitHostPort(localName);
    if (!parts || parts->first.empty()) return failWith(ERR_INVALID_ARGUMENT, "init: local_server_name " + localName + ": expected a host or host:port, which a handshake needs");
    host_ = parts->first;
  }
  if (host_.empty()) host_ = firstInterfaceAddress();
  if (int code = bindPorts(host_, rpcPort); code != 0) return code;
  name = handshake_ ? joinHostPort(host_, rpcPort_) : localName;
  instance_ = randomHex(8);
  timestamp_ = timeStamp();
  started_ = true;
  for (auto& loop : loops_) loop->start();
  loops_[0]->post([rpc = rpc_] { rpc->start(); });
  describe();
  if (!handshake_) {
    // The name must be claimed before anything is published under it.
    if (int code = claimName(); code != 0) {
      std::string why = lastError();
      stop();
      return failWith(code, why);
    }
  }
  if (autoDiscover) {
    if (!install("shm", "")) logLine(LogLevel::Warning, "shm cannot be installed: " + lastError());
    if (fabricDevicesPresent() && !install("rdma", "")) logLine(LogLevel::Warning, "rdma devices were found, but: " + lastError());
    if (!install("tcp", "")) return stop(), ERR_SOCKET;
  }
  describe();
  if (!handshake_) {
    if (!store_->set(rpcKey(name), rpcRecord()) || !store_->set(segmentKey(name), recordText())) {
      std::string why = lastError();
      stop();
      return failWith(ERR_METADATA, "init: publishing " + name + ": " + why);
    }
    heart_ = std::thread([this] { beat(); });
  }
  logLine(LogLevel::Info, "engine " + name + " serves at " + localAddress());
  return 0;
}

int Engine::bindPorts(const std::string& host, uint64_t rpcPort) {
  if (options.minRpcPort > options.maxRpcPort) return failWith(ERR_INVALID_ARGUMENT, "option min_rpc_port is above max_rpc_port");
  uint64_t threads = options.ioThreads != 0 ? options.ioThreads : std::max(1u, std::thread::hardware_concurrency() / 2);
  uint16_t port = uint16_t(rpcPort);
  Fd listener;
  if (port != 0) {
    int error = 0;
    listener = listenAt(host, port, error);
    if (!listener)
      return failWith(ERR_SOCKET, error == EADDRINUSE ? "init: rpc_port " + std::to_string(rpcPort) + " on " + host + " is in use; give another, or 0 for a free one"
                                                      : "init: rpc_port " + std::to_string(rpcPort) + " on " + host + ": " + (error == 0 ? lastError() : errnoText(error)));
  } else {
    std::string why;
    listener = listenInRange(host, options.minRpcPort, options.maxRpcPort, port, why);
    if (!listener) return failWith(ERR_SOCKET, "init: " + why);
  }
  rpcPort_ = port;
  for (size_t i = 0; i < threads; i++) loops_.push_back(std::make_unique<EventLoop>([this, i] { tick(i); }, options.pollUs));
  RpcAnswers answers;
  answers.descriptor = [this](const std::string& segment) -> std::string {
    if (!segment.empty()) {
      auto record = folderRecord(segment);
      return record ? record->toJson().dump() : "{}";
    }
    return handshake_ && withdrawn_ ? "{}" : recordText();
  };
  answers.notify = [this](const std::string& from, const std::string& message) { return takeNotify(from, message); };
  answers.connection = [this](const Json& request) {
    Json reply(Json::Object{{"local_nic_path", ""}, {"peer_nic_path", ""}, {"local_lid", 0}, {"local_gid", ""}, {"qp_num", Json::array()}, {"payload", ""}, {"reply_msg", ""}});
    auto payload = Json::parse(request["payload"].text());
    if (!payload) return reply;
    for (const auto& each : installed())
      if (auto ours = each->answerExchange(*payload)) reply.set("payload", ours->dump());
    return reply;
  };
  rpc_ = std::make_shared<RpcServer>(*loops_[0], std::move(listener), std::move(answers));
  return 0;
}

void Engine::tick(size_t loop) {
  for (const auto& each : installed()) each->tick(loop);
  if (loop != 0) return;
  rpc_->tick();
  expireWaiting();
  watchSilent();
}

void Engine::beat() {
  std::unique_lock lock(heartMutex_);
  while (!stopping_ && options.heartbeatMs != 0) {
    heartWake_.wait_for(lock, std::chrono::milliseconds(options.heartbeatMs));
    if (stopping_) return;
    lock.unlock();
    // We hold the registrations' lock, or an older record could overwrite a newer one.
    if (hasName()) {
      std::lock_guard memory(memoryMutex_);
      std::map<std::string, std::string> records{{rpcKey(name), rpcRecord()}};
      if (!withdrawn_) records[segmentKey(name)] = recordText();
      if (!store_->refresh(records)) {
        metrics.metadataFailures.fetch_add(1);
        logLine(LogLevel::Warning, "renewing the records of " + name + ": " + lastError());
      }
    }
    lock.lock();
  }
}

int Engine::stop() {
  // A repeated call waits again for copies of a stopped process.
  if (stopping_.exchange(true)) return started_ ? 0 : release(registry.all());
  heartWake_.notify_all();
  if (heart_.joinable()) {
    {
      std::lock_guard lock(heartMutex_);
      heartWake_.notify_all();
    }
    heart_.join();
  }
  const auto transports = installed();
  for (const auto& each : transports) each->closeRoutes("the engine is stopping");
  for (uint64_t until = nowMs() + STOP_WAIT_MS; (!batches.allIdle() || inside_ != 0) && nowMs() < until;) usleep(1000);
  if (started_ && store_) {
    // Mooncake's engines delete the address first, then the segment.
    removeOwn(rpcKey(name));
    removeOwn(segmentKey(name));
  }
  if (started_ && !loops_.empty()) loops_[0]->post([rpc = rpc_] { rpc->closeAll(); });
  for (const auto& each : transports) each->stopServing();
  for (auto& loop : loops_) loop->stop();
  pool.stop();
  fillPool.stop();
  const int left = release(registry.all());
  const std::string why = left == 0 ? "" : lastError();
  {
    std::lock_guard lock(segmentMutex_);
    segments_.clear();
    segmentIDs_.clear();
  }
  for (const auto& each : transports) each->end();
  {
    std::lock_guard lock(listMutex_);
    installed_.clear();
    files_.reset();
  }
  started_ = false;
  if (left == 0) return 0;
  logLine(LogLevel::Error, why);
  return failWith(left, why);
}

}  // namespace svc
