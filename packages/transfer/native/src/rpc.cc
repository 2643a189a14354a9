// The handshake port as an event handler: a silent client only costs a descriptor for five seconds.
#include "rpc.h"

#include "svc/transfer_engine.h"

namespace svc {

//   reading ──frame──▶ writing ──all sent──▶ half closed ──client's close, or time-out──▶ closed
class RpcConnection : public EventHandler {
 public:
  RpcConnection(RpcServer& server, Fd fd) : server_(server), fd_(std::move(fd)), sinceMs_(nowMs()) {}
  int fd() const { return fd_.get(); }
  uint64_t sinceMs() const { return sinceMs_; }

  void onEvents(uint32_t events) override {
    if (!fd_) return;
    if ((events & EPOLLOUT) != 0 && !flush()) return close();
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !readSome()) return close();
  }

  void close() {
    if (!fd_) return;
    server_.loop_.remove(fd_.get());
    fd_.reset();
    server_.drop(this);
  }

 private:
  bool readSome() {
    char chunk[16 << 10];
    while (true) {
      ssize_t n = recv(fd_.get(), chunk, sizeof chunk, MSG_DONTWAIT);
      if (n == 0) return false;
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      if (answered_) continue;
      in_.append(chunk, size_t(n));
      if (in_.size() < 8) continue;
      auto length = wire::frameLength(in_.data(), wire::RPC_MAX_BYTES);
      if (!length) return false;
      if (in_.size() < 8 + *length) continue;
      if (!answer(std::string_view(in_).substr(8, *length))) return false;
      answered_ = true;
      in_.clear();
      if (!flush()) return false;
    }
  }

  bool answer(std::string_view body) {
    wire::Frame frame = wire::readFrame(body);
    auto request = Json::parse(frame.json);
    if (!request) return false;
    std::string reply;
    switch (frame.type) {
      case wire::RPC_CONNECTION: reply = server_.answers_.connection(*request).dump(); break;
      case wire::RPC_METADATA: reply = server_.answers_.descriptor((*request)["segment"].text()); break;
      case wire::RPC_NOTIFY: {
        std::string refusal = server_.answers_.notify((*request)["name"].text(), (*request)["notify_msg"].text());
        Json json(Json::Object{{"name", ""}, {"notify_msg", refusal.empty() ? "success" : ""}});
        if (!refusal.empty()) json.set("error", refusal);
        reply = json.dump();
        break;
      }
      default: reply = Json(Json::Object{{"status", "success"}}).dump();
    }
    out_ = wire::putFrame({frame.typed, frame.type, reply + "\n"});
    return true;
  }

  bool flush() {
    while (sent_ < out_.size()) {
      ssize_t n = send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) {
        server_.loop_.change(fd_.get(), EPOLLIN | EPOLLOUT, this);
        return true;
      }
      if (n <= 0) return false;
      sent_ += size_t(n);
    }
    if (!out_.empty()) {
      server_.loop_.change(fd_.get(), EPOLLIN, this);
      shutdown(fd_.get(), SHUT_WR);
    }
    return true;
  }

  RpcServer& server_;
  Fd fd_;
  uint64_t sinceMs_;
  std::string in_, out_;
  size_t sent_ = 0;
  bool answered_ = false;
};

RpcServer::RpcServer(EventLoop& loop, Fd listener, RpcAnswers answers) : loop_(loop), listener_(std::move(listener)), answers_(std::move(answers)) {}
RpcServer::~RpcServer() = default;

void RpcServer::start() { loop_.add(listener_.get(), EPOLLIN, this); }

void RpcServer::onEvents(uint32_t) {
  while (true) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      // No descriptors are left. The listener stays readable, so accepting again at once would only burn a core.
      if (errno == EMFILE || errno == ENFILE) usleep(1000);
      return;
    }
    if (connections_.size() >= MAX_CONNECTIONS) {
      // Silent clients must not keep others out, so the oldest connection is closed.
      RpcConnection* oldest = nullptr;
      for (auto& [raw, connection] : connections_)
        if (oldest == nullptr || raw->sinceMs() < oldest->sinceMs()) oldest = raw;
      oldest->close();
    }
    auto connection = std::make_shared<RpcConnection>(*this, std::move(fd));
    if (loop_.add(connection->fd(), EPOLLIN, connection.get())) connections_.emplace(connection.get(), connection);
  }
}

void RpcServer::tick() {
  std::vector<RpcConnection*> over;
  uint64_t now = nowMs();
  for (auto& [raw, connection] : connections_)
    if (now - raw->sinceMs() > CONNECTION_MS) over.push_back(raw);
  for (auto* connection : over) connection->close();
}

void RpcServer::drop(RpcConnection* connection) {
  auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  loop_.retire(found->second);
  connections_.erase(found);
}

void RpcServer::closeAll() {
  loop_.remove(listener_.get());
  listener_.reset();
  while (!connections_.empty()) connections_.begin()->second->close();
}

std::optional<Json> callPeer(const Address& peer, uint8_t type, const Json& request, uint64_t connectTimeoutMs, uint64_t timeoutMs) {
  std::string who = "handshake with " + joinHostPort(peer.host(), peer.port());
  Fd fd = connectWithin(peer, connectTimeoutMs);
  if (!fd) return std::nullopt;
  uint64_t deadline = nowNs() + timeoutMs * NS_PER_MS;
  std::string frame = wire::putFrame({true, type, request.dump() + "\n"});
  char prefix[8];
  if (!sendAll(fd.get(), frame.data(), frame.size(), deadline) || !receiveAll(fd.get(), prefix, sizeof prefix, deadline)) {
    setLastError(who + ": " + errnoText());
    return std::nullopt;
  }
  auto length = wire::frameLength(prefix, wire::RPC_MAX_REPLY_BYTES);
  if (!length) {
    setLastError(who + ": the answer's length is not of this protocol");
    return std::nullopt;
  }
  // The body grows as bytes arrive, so that a peer cannot make us reserve memory for data it does not send.
  std::string body;
  char chunk[64 << 10];
  while (body.size() < *length) {
    ssize_t n = receiveSome(fd.get(), chunk, std::min<uint64_t>(sizeof chunk, *length - body.size()), deadline);
    if (n <= 0) {
      setLastError(who + ": the answer was cut off");
      return std::nullopt;
    }
    body.append(chunk, size_t(n));
  }
  auto json = Json::parse(wire::readFrame(body).json);
  if (!json) setLastError(who + ": the answer is not valid JSON");
  return json;
}

}  // namespace svc
