// Refuses calls without a key, and applies the rights of the key that a connection showed.
#include "server/server.h"

namespace svc {

namespace {
constexpr u64 reportDeniedMs = 1'000;
}  // namespace

std::string Server::authorize(u64 id, Rights rights, std::string tenant) {
  const std::lock_guard lock(mutex_);
  Connection* connection = connectionOf(id);
  if (connection == nullptr) return {};
  connection->rights = rights;
  connection->tenant = std::move(tenant);
  connection->closing = rights == Rights::none;
  return peerOf(connection->fd);
}

std::pair<Rights, std::string> Server::callerOf(u64 id) {
  const std::lock_guard lock(mutex_);
  const Connection* connection = connectionOf(id);
  if (connection == nullptr) return {Rights::none, {}};
  return {connection->rights, connection->tenant};
}

void Server::refuseCall(u32 slot, const Request& request, u8 error, const std::string& body) {
  Connection& connection = conns_[slot];
  const std::size_t before = connection.out.size();
  WireWriter to(connection.out);
  to.frame(request.seq, error);
  connection.out.append(body);
  to.end();
  connection.appended += connection.out.size() - before;
  touch(slot);
}

// However many calls are denied, JavaScript gets one event per second.
void Server::reportDenied(u32 slot, u32 function) {
  ++denied_;
  if (nowMs() < deniedAtMs_) return;
  emit_({EventKind::denied, denied_, 0, function, peerOf(conns_[slot].fd)});
  denied_ = 0;
  deniedAtMs_ = nowMs() + reportDeniedMs;
}

}  // namespace svc
