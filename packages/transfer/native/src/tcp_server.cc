// The data port: one state machine per connection, acknowledgements gathered, large bodies read into place.
#include "tcp_server.h"

#include <sys/uio.h>

#include <deque>

#include "wire.h"

namespace svc {

namespace {
constexpr uint64_t DIRECT_BYTES = 16 << 10;
constexpr size_t GATHER_PARTS = 128;
/** Reads of one connection before the others get their turn. */
constexpr int READS_PER_TURN = 16;
/** After a refusal the rest of the peer's bytes is thrown away for this long, so that the status frame is not lost to a reset. */
constexpr uint64_t DRAIN_MS = 1000;
}  // namespace

//   header ──ok──▶ body (write) ──▶ header      refused ──▶ draining ──▶ closed
class TcpServerConnection : public EventHandler {
 public:
  TcpServerConnection(TcpServer& server, Fd fd) : server_(server), fd_(std::move(fd)), lastActiveMs_(nowMs()) {}
  int fd() const { return fd_.get(); }
  uint64_t lastActiveMs() const { return lastActiveMs_; }
  bool drained() const { return draining_ && nowMs() - drainingSinceMs_ > DRAIN_MS; }

  void onEvents(uint32_t events) override {
    if (!fd_) return;
    lastActiveMs_ = nowMs();
    if ((events & EPOLLOUT) != 0 && !flush()) return close();
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !readSome()) return close();
    uint32_t wanted = out_.empty() ? uint32_t(EPOLLIN) : uint32_t(EPOLLOUT);
    if (wanted != watched_) server_.loop_.change(fd_.get(), watched_ = wanted, this);
  }

  void close() {
    if (!fd_) return;
    server_.loop_.remove(fd_.get());
    fd_.reset();
    server_.drop(this);
  }

 private:
  struct Outgoing {
    BufferRef buffer;  // null: an 8-byte status
    uint64_t address = 0, length = 0, status = 0;
  };

  bool readSome() {
    auto& scratch = server_.scratch_;
    for (int turn = 0; turn < READS_PER_TURN; turn++) {
      iovec parts[2];
      size_t count = 0, wanted = 0;
      uint64_t left = bodyLeft_;
      bool direct = left >= DIRECT_BYTES;
      if (direct && !body_->enter()) return false;
      if (direct) {
        wanted = left;
        parts[count++] = {reinterpret_cast<char*>(bodyAt_), left};
      }
      parts[count++] = {scratch.data(), scratch.size()};
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = count;
      ssize_t n = recvmsg(fd_.get(), &message, MSG_DONTWAIT);
      int error = errno;
      if (direct) body_->leave();
      if (n == 0) return false;
      if (n < 0) return error == EAGAIN || error == EINTR;
      size_t placed = std::min(wanted, size_t(n));
      if (placed > 0) advanceBody(placed);
      if (!parse(scratch.data(), size_t(n) - placed)) return false;
      bool drained = size_t(n) < (direct ? wanted : scratch.size());
      if (!out_.empty() && (drained || bodyLeft_ == 0)) {
        if (!flush()) return false;
        if (!out_.empty()) return true;
      }
      if (drained && bodyLeft_ < DIRECT_BYTES) return true;
    }
    return true;
  }

  bool parse(const char* at, size_t size) {
    if (draining_) return true;
    while (size > 0) {
      if (bodyLeft_ > 0) {
        size_t take = std::min<uint64_t>(size, bodyLeft_);
        if (!body_->enter()) return false;
        memcpy(reinterpret_cast<char*>(bodyAt_), at, take);
        body_->leave();
        advanceBody(take);
        at += take;
        size -= take;
        continue;
      }
      const char* header = at;
      size_t take = wire::HEADER_BYTES;
      if (partial_ > 0 || size < take) {
        take = std::min(wire::HEADER_BYTES - partial_, size);
        memcpy(header_ + partial_, at, take);
        partial_ += take;
        if (partial_ < wire::HEADER_BYTES) return true;
        header = header_;
        partial_ = 0;
      }
      if (!begin(header)) return false;
      if (draining_) return true;
      at += take;
      size -= take;
    }
    return true;
  }

  bool begin(const char* bytes) {
    auto header = wire::readHeader(bytes);
    if (!header) return false;
    BufferRef buffer = header->size == 0 ? nullptr : server_.registry_.forPeer(header->address, header->size);
    if (!buffer) {
      server_.metrics_.refusedByServer.fetch_add(1, std::memory_order_relaxed);
      // Peers with the older framing learn of a refusal by the close alone.
      if (!header->acknowledged()) return false;
      out_.push_back({nullptr, 0, wire::STATUS_BYTES, wire::STATUS_REFUSED});
      draining_ = true;
      drainingSinceMs_ = nowMs();
      return true;
    }
    acknowledge_ = header->acknowledged();
    if (header->write()) {
      body_ = std::move(buffer);
      bodyAt_ = header->address;
      bodyLeft_ = header->size;
      return true;
    }
    if (acknowledge_) out_.push_back({nullptr, 0, wire::STATUS_BYTES, wire::STATUS_OK});
    server_.metrics_.servedBytes.fetch_add(header->size, std::memory_order_relaxed);
    out_.push_back({std::move(buffer), header->address, header->size, 0});
    return true;
  }

  void advanceBody(uint64_t bytes) {
    bodyAt_ += bytes;
    bodyLeft_ -= bytes;
    server_.metrics_.servedBytes.fetch_add(bytes, std::memory_order_relaxed);
    if (bodyLeft_ > 0) return;
    body_.reset();
    if (acknowledge_) out_.push_back({nullptr, 0, wire::STATUS_BYTES, wire::STATUS_OK});
  }

  /** False when the connection is of no more use. */
  bool flush() {
    while (!out_.empty()) {
      iovec parts[GATHER_PARTS];
      size_t count = 0;
      uint64_t skip = outOffset_;
      bool revoked = false;
      for (auto& piece : out_) {
        if (count == GATHER_PARTS) break;
        if (piece.buffer && !piece.buffer->enter()) {
          revoked = true;
          break;
        }
        char* base = piece.buffer ? reinterpret_cast<char*>(piece.address) : reinterpret_cast<char*>(&piece.status);
        parts[count++] = {base + skip, piece.length - skip};
        skip = 0;
      }
      ssize_t n = 0;
      int error = 0;
      if (count > 0) {
        msghdr message{};
        message.msg_iov = parts;
        message.msg_iovlen = count;
        n = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        error = errno;
      }
      for (size_t i = 0; i < count; i++)
        if (out_[i].buffer) out_[i].buffer->leave();
      if (revoked && count == 0) return false;
      if (n < 0) return error == EAGAIN || error == EINTR;
      for (uint64_t sent = uint64_t(n); sent > 0;) {
        uint64_t left = out_.front().length - outOffset_;
        if (sent < left) {
          outOffset_ += sent;
          break;
        }
        sent -= left;
        outOffset_ = 0;
        out_.pop_front();
      }
    }
    if (draining_) shutdown(fd_.get(), SHUT_WR);
    return true;
  }

  TcpServer& server_;
  Fd fd_;
  uint64_t lastActiveMs_;
  char header_[wire::HEADER_BYTES];
  size_t partial_ = 0;
  BufferRef body_;
  uint64_t bodyAt_ = 0, bodyLeft_ = 0;
  bool acknowledge_ = true;
  std::deque<Outgoing> out_;
  uint64_t outOffset_ = 0;
  uint32_t watched_ = EPOLLIN;
  bool draining_ = false;
  uint64_t drainingSinceMs_ = 0;
};

TcpServer::TcpServer(EventLoop& loop, Fd listener, const MemoryRegistry& registry, Metrics& metrics)
    : loop_(loop), listener_(std::move(listener)), registry_(registry), metrics_(metrics) {}
TcpServer::~TcpServer() = default;

void TcpServer::start() { loop_.add(listener_.get(), EPOLLIN, this); }

void TcpServer::onEvents(uint32_t) {
  while (true) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      // Out of descriptors: the listener stays readable, and asking again at once would only burn a core.
      if (errno == EMFILE || errno == ENFILE) usleep(1000);
      return;
    }
    if (connections_.size() >= MAX_CONNECTIONS && !makeRoom()) continue;
    int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, 1 /* TCP_NODELAY */, &on, sizeof on);
    auto connection = std::make_shared<TcpServerConnection>(*this, std::move(fd));
    if (loop_.add(connection->fd(), EPOLLIN, connection.get())) connections_.emplace(connection.get(), connection);
  }
}

bool TcpServer::makeRoom() {
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
