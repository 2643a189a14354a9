// Opens and closes the data port, and keeps the routes to peers.
#include "tcp_transport.h"

namespace svc {

bool TcpTransport::listen(const MemoryRegistry& registry, const FileService& files) {
  std::string why;
  Fd listener = listenInRange(host_, options_.minRpcPort, options_.maxRpcPort, port_, why);
  if (!listener) {
    setLastError("installTransport tcp: " + why);
    return false;
  }
  auto self = std::static_pointer_cast<TcpTransport>(shared_from_this());
  for (size_t i = 0; i < loops_.size(); i++) {
    auto server = std::make_shared<TcpServer>(*loops_[i], Fd(fcntl(listener.get(), F_DUPFD_CLOEXEC, 0)), registry, metrics_, files);
    loops_[i]->post([self, i, server] {
      self->servers_[i] = server;
      server->start();
    });
  }
  return true;
}

RouteRef TcpTransport::route(const RouteRequest& to, std::string& why) {
  if (to.record.isFile() && to.owner == nullptr) return nullptr;
  const SegmentDescriptor& serving = to.owner != nullptr ? *to.owner : to.record;
  if (serving.tcpPort == 0) return why = "the peer serves no tcp", nullptr;
  if (serving.tcpVersion < 2) return why = "the peer speaks only the framing without acknowledgements, in which lost writes look complete", nullptr;
  auto address = resolveHost(serving.tcpHost, serving.tcpPort);
  if (!address) return why = lastError(), nullptr;
  if (auto* before = static_cast<TcpPeer*>(to.before.get()); before != nullptr && !before->closed() && before->who() == joinHostPort(address->host(), address->port())) return to.before;
  auto self = std::static_pointer_cast<TcpTransport>(shared_from_this());
  auto peer = std::make_shared<TcpPeer>(std::move(self), to, *loops_[to.id % loops_.size()], *address);
  std::lock_guard lock(mutex_);
  if (!installed()) return why = "transport tcp is not installed", nullptr;
  peers_.insert(peer);
  return peer;
}

void TcpTransport::describe(SegmentDescriptor& record) const {
  record.tcpHost = host_;
  record.tcpPort = port_;
  record.tcpVersion = 2;
}

void TcpTransport::tick(size_t loop) {
  if (servers_[loop]) servers_[loop]->tick();
  if (loop != 0) return;
  std::vector<std::shared_ptr<TcpPeer>> all;
  {
    std::lock_guard lock(mutex_);
    all.assign(peers_.begin(), peers_.end());
  }
  for (auto& peer : all) peer->tick();
}

void TcpTransport::stopServing() {
  auto self = std::static_pointer_cast<TcpTransport>(shared_from_this());
  for (size_t i = 0; i < loops_.size(); i++)
    loops_[i]->post([self, i] {
      if (auto server = std::move(self->servers_[i])) server->closeAll();
    });
}

void TcpTransport::closeRoutes(const std::string& why) {
  std::vector<std::shared_ptr<TcpPeer>> all;
  {
    std::lock_guard lock(mutex_);
    InstalledTransport::closeRoutes(why);
    all.assign(peers_.begin(), peers_.end());
  }
  for (const auto& peer : all) drop(peer, why);
}

void TcpTransport::drop(const std::shared_ptr<TcpPeer>& peer, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (peers_.erase(peer) == 0) return;
  }
  peer->closeConnections(why);
  // The loop may hold events of its lanes.
  for (auto* loop : loops_) loop->post([peer] {});
}

}  // namespace svc
