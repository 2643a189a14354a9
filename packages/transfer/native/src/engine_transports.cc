// Transports of an engine: installed by name, asked for, taken away.
#include "engine.h"
#include "topology.h"

namespace svc {


Transport* Engine::install(const std::string& proto, const std::string& matrix) {
  if (!started_) {
    setLastError("installTransport " + proto + ": call init first");
    return nullptr;
  }
  if (!matrix.empty()) {
    auto json = Json::parse(matrix);
    if (!json || !json->isObject()) {
      setLastError("installTransport " + proto + ": the priority matrix is no JSON object of location to [[preferred], [others]]");
      return nullptr;
    }
    priorityMatrix_ = *json;
  }
  int contexts = 1;
  {
    std::lock_guard lock(transportMutex_);
    if (auto found = transports_.find(proto); found != transports_.end()) {
      logLine(LogLevel::Warning, "transport " + proto + " is installed already");
      return found->second.get();
    }
    if (proto == "tcp") {
      if (!installTcp()) return nullptr;
      tcp_ = true;
    } else if (proto == "shm") {
      if (!control_) control_ = std::make_shared<ControlPage>();
      if (!control_->ready()) {
        setLastError("installTransport shm: this process gets no shared memory: " + errnoText());
        return nullptr;
      }
      shm_ = true;
    } else if (proto == "nvmeof") {
      files_ = std::make_shared<FileTransport>(options.fileSync == "data");
      file_ = true;
    } else if (proto == "rdma") {
      rdma_ = RdmaTransport::open(options.fabricProvider, filters);
      if (!rdma_) return nullptr;
      rdma_->setTopology(matrix.empty() ? discoverTopology(filters) : readTopology(priorityMatrix_));
      contexts = int(rdma_->devices());
      fabric_ = true;
    } else {
      setLastError("installTransport " + proto + ": there is no such transport; tcp, shm, rdma and nvmeof are known");
      return nullptr;
    }
    transports_[proto] = std::make_unique<NamedTransport>(proto, contexts);
  }
  // Buffers registered before become reachable over it too.
  std::lock_guard memory(memoryMutex_);
  for (const auto& buffer : registry.all()) {
    if (proto == "shm" && buffer->remoteAccessible && !buffer->revoked()) control_->take(buffer->slot, buffer->generation);
    if (proto == "rdma" && !rdma_->registerBuffer(*buffer)) {
      std::string why = lastError();
      uninstall(proto);
      setLastError("installTransport rdma: a buffer registered before is refused: " + why);
      return nullptr;
    }
  }
  sync("");
  if (publish() != 0) logLine(LogLevel::Warning, "publishing " + proto + ": " + lastError());
  return transport(proto);
}

bool Engine::installTcp() {
  std::string why;
  uint16_t port = 0;
  Fd listener = listenInRange(host_, port, why);
  if (!listener) {
    setLastError("installTransport tcp: " + why);
    return false;
  }
  for (auto& io : io_) {
    auto server = std::make_shared<TcpServer>(*io.loop, Fd(fcntl(listener.get(), F_DUPFD_CLOEXEC, 0)), registry, metrics, fileService());
    io.loop->post([&io, server] {
      io.server = server;
      server->start();
    });
  }
  dataPort_ = port;
  return true;
}

int Engine::uninstall(const std::string& proto) {
  std::shared_ptr<RdmaTransport> gone;
  {
    std::lock_guard lock(transportMutex_);
    auto found = transports_.find(proto);
    if (found == transports_.end()) return failWith(ERR_INVALID_ARGUMENT, "uninstallTransport " + proto + ": it is not installed");
    transports_.erase(found);
    if (proto == "tcp") {
      tcp_ = false;
      dataPort_ = 0;
      for (auto& io : io_)
        io.loop->post([&io] {
          if (io.server) io.server->closeAll();
          io.server.reset();
        });
    } else if (proto == "shm") {
      shm_ = false;
    } else if (proto == "nvmeof") {
      file_ = false;
      files_.reset();
    } else if (proto == "rdma") {
      fabric_ = false;
      gone = std::move(rdma_);
    }
  }
  std::lock_guard memory(memoryMutex_);
  std::vector<std::shared_ptr<TcpPeer>> dropped;
  if (proto == "tcp") {
    std::lock_guard lock(peerMutex_);
    dropped.assign(peers_.begin(), peers_.end());
  }
  for (const auto& peer : dropped) dropTcp(peer, "the tcp transport was uninstalled");
  for (const auto& buffer : registry.all()) {
    if (proto == "shm" && buffer->slot >= 0) control_->close(buffer->slot);
    if (gone) gone->unregisterBuffer(*buffer);
  }
  // Views that hold what was taken away are made anew.
  sync("");
  if (gone) gone->stop();
  publish();
  return 0;
}

Transport* Engine::transport(const std::string& proto) {
  std::lock_guard lock(transportMutex_);
  auto found = transports_.find(proto);
  if (found != transports_.end()) return found->second.get();
  setLastError("transport " + proto + " is not installed");
  return nullptr;
}

int Engine::contexts() const {
  auto& self = const_cast<Engine&>(*this);
  std::lock_guard lock(self.transportMutex_);
  int sum = 0;
  for (const auto& [proto, transport] : transports_) sum += transport->contexts();
  return sum;
}

std::shared_ptr<Topology> Engine::topology() { return std::make_shared<Topology>(discoverTopology(filters)); }

}  // namespace svc
