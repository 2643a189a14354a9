// The data port: accepts connections, limits their number, and closes finished ones.
#include "tcp_server.h"

#include "tcp_connection.h"

namespace svc {

TcpServer::TcpServer(EventLoop& loop, Fd listener, const MemoryRegistry& registry, Metrics& metrics, FileService files)
    : loop_(loop), listener_(std::move(listener)), registry_(registry), metrics_(metrics), files_(std::move(files)) {}
TcpServer::~TcpServer() = default;

void TcpServer::start() { loop_.add(listener_.get(), EPOLLIN, this); }

void TcpServer::onEvents(uint32_t) {
  while (true) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      // No descriptors are left. The listener stays readable, so accepting again at once would only burn a core.
      if (errno == EMFILE || errno == ENFILE) usleep(1000);
      return;
    }
    if (connections_.size() >= MAX_CONNECTIONS && !evictIdle()) continue;
    int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
    fitSendBuffer(fd.get());
    auto connection = std::make_shared<TcpServerConnection>(*this, std::move(fd));
    if (loop_.add(connection->fd(), EPOLLIN, connection.get())) connections_.emplace(connection.get(), connection);
  }
}

bool TcpServer::evictIdle() {
  TcpServerConnection* oldest = nullptr;
  for (auto& [raw, connection] : connections_)
    if (oldest == nullptr || raw->lastActiveMs() < oldest->lastActiveMs()) oldest = raw;
  if (oldest == nullptr || nowMs() - oldest->lastActiveMs() < IDLE_EVICT_MS) return false;
  oldest->close();
  return true;
}

void TcpServer::tick() {
  std::vector<TcpServerConnection*> over;
  for (auto& [raw, connection] : connections_)
    if (raw->drained()) over.push_back(raw);
  for (auto* connection : over) connection->close();
}

void TcpServer::drop(TcpServerConnection* connection) {
  auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  loop_.retire(found->second);
  connections_.erase(found);
}

void TcpServer::closeAll() {
  loop_.remove(listener_.get());
  listener_.reset();
  while (!connections_.empty()) connections_.begin()->second->close();
}

}  // namespace svc
