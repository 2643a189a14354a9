// The transports of an engine: installing, finding and uninstalling them.
#include "engine.h"
#include "host_transport.h"
#include "rdma_transport.h"
#include "tcp_transport.h"
#include "topology.h"

namespace svc {

TransportRef Engine::make(const std::string& proto, const std::string& matrix) {
  RouteOwner& owner = *this;
  if (proto == "tcp") {
    std::vector<EventLoop*> loops;
    for (auto& loop : loops_) loops.push_back(loop.get());
    auto tcp = std::make_shared<TcpTransport>(std::move(loops), options, metrics, owner, host_);
    return tcp->listen(registry, fileService()) ? tcp : nullptr;
  }
  if (proto == "shm") {
    if (!control_) control_ = std::make_shared<ControlPage>();
    if (control_->ready()) return std::make_shared<HostTransport>(control_, options, metrics);
    setLastError("installTransport shm: this process gets no shared memory: " + errnoText());
    return nullptr;
  }
  if (proto == "nvmeof") return std::make_shared<FileTransport>(options.fileSync == "data", name, metrics);
  if (proto == "rdma") {
    auto rdma = RdmaTransport::open(options.fabricProvider, filters, metrics, owner);
    if (rdma) rdma->setTopology(matrix.empty() ? discoverTopology(filters) : readTopology(priorityMatrix_));
    return rdma;
  }
  setLastError("installTransport " + proto + ": expected tcp, shm, rdma or nvmeof");
  return nullptr;
}

Transport* Engine::install(const std::string& proto, const std::string& matrix) {
  if (!started_) {
    setLastError("installTransport " + proto + ": call init first");
    return nullptr;
  }
  if (!matrix.empty()) {
    auto json = Json::parse(matrix);
    if (!json || !json->isObject()) {
      setLastError("installTransport " + proto + ": the priority matrix is not a JSON object of location to [[preferred], [others]]");
      return nullptr;
    }
    priorityMatrix_ = *json;
  }
  TransportRef made;
  {
    std::lock_guard one(installMutex_);
    if (auto found = find(proto)) {
      logLine(LogLevel::Warning, "transport " + proto + " is installed already");
      return found.get();
    }
    made = make(proto, matrix);
    if (!made) return nullptr;
    std::lock_guard lock(listMutex_);
    installed_.push_back(made);
    if (proto == "nvmeof") files_ = std::static_pointer_cast<FileTransport>(made);
    watched_ = watched_ || made->watched();
  }
  // Buffers that were registered earlier also become reachable over the new transport.
  std::lock_guard memory(memoryMutex_);
  for (const auto& buffer : registry.all()) {
    if (made->registerBuffer(*buffer)) continue;
    std::string why = lastError();
    uninstall(proto);
    setLastError("installTransport " + proto + ": a buffer registered before is refused: " + why);
    return nullptr;
  }
  sync("");
  if (publish() != 0) logLine(LogLevel::Warning, "publishing " + proto + ": " + lastError());
  return transport(proto);
}

int Engine::uninstall(const std::string& proto) {
  TransportRef gone;
  {
    std::lock_guard one(installMutex_);
    gone = find(proto);
    if (!gone) return failWith(ERR_INVALID_ARGUMENT, "uninstallTransport " + proto + ": it is not installed");
    std::lock_guard lock(listMutex_);
    std::erase(installed_, gone);
    if (proto == "nvmeof") files_.reset();
  }
  gone->stopServing();
  std::lock_guard memory(memoryMutex_);
  gone->closeRoutes("the " + proto + " transport was uninstalled");
  for (const auto& buffer : registry.all()) gone->unregisterBuffer(*buffer);
  // Segment views still refer to the removed transport, so we rebuild them.
  sync("");
  gone->end();
  publish();
  return 0;
}

std::vector<TransportRef> Engine::installed() const {
  std::lock_guard lock(listMutex_);
  return installed_;
}

TransportRef Engine::find(const std::string& proto) const {
  std::lock_guard lock(listMutex_);
  for (const auto& each : installed_)
    if (each->name() == proto) return each;
  return nullptr;
}

Transport* Engine::transport(const std::string& proto) {
  if (auto found = find(proto)) return found.get();
  setLastError("transport " + proto + " is not installed");
  return nullptr;
}

int Engine::contexts() const {
  int sum = 0;
  for (const auto& each : installed()) sum += each->contexts();
  return sum;
}

std::shared_ptr<Topology> Engine::topology() { return std::make_shared<Topology>(discoverTopology(filters)); }

}  // namespace svc
