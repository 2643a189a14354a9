// A connection's reads and writes of memory: acknowledgements are gathered, and large bodies read directly into place.
#include "tcp_connection.h"

#include <sys/uio.h>

namespace svc {

namespace {
/**
 * Bodies with more bytes left than this are read directly into place. After one, only the next header is read, so that its body can go into
 * place, too.
 */
constexpr uint64_t DIRECT_BYTES = 16 << 10;
constexpr size_t GATHER_PARTS = 128;
/** The limit of reads from one connection before others are served. */
constexpr int READS_PER_TURN = 16;
}  // namespace

void TcpServerConnection::onEvents(uint32_t events) {
  if (!fd_) return;
  lastActiveMs_ = nowMs();
  if ((events & EPOLLOUT) != 0 && !(flush() && proceed())) return close();
  if (!away_ && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !readSome()) return close();
  if (!away_) watch();
}

void TcpServerConnection::close() {
  if (!fd_) return;
  server_.loop_.remove(fd_.get());
  fd_.reset();
  if (file_) server_.fileSessions_--;
  server_.drop(this);
}

void TcpServerConnection::watch() {
  uint32_t wanted = out_.empty() ? uint32_t(EPOLLIN) : uint32_t(EPOLLOUT);
  if (wanted != watched_) server_.loop_.change(fd_.get(), watched_ = wanted, this);
}

void TcpServerConnection::refuse() {
  server_.metrics_.refusedByServer.fetch_add(1, std::memory_order_relaxed);
  out_.push_back({nullptr, 0, wire::STATUS_BYTES, wire::STATUS_REFUSED, nullptr});
  draining_ = true;
  drainingSinceMs_ = nowMs();
  unparsed_.clear();
}

bool TcpServerConnection::readSome() {
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
    const size_t spare = direct || afterLarge_ ? std::min(scratch.size(), wire::HEADER_BYTES - partial_) : scratch.size();
    parts[count++] = {scratch.data(), spare};
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
    if (away_) return true;
    bool drained = size_t(n) < (direct ? wanted : spare);
    if (!out_.empty() && (drained || bodyLeft_ == 0)) {
      if (!flush()) return false;
      if (!out_.empty()) return true;
    }
    if (drained && bodyLeft_ < DIRECT_BYTES) return true;
  }
  return true;
}

bool TcpServerConnection::parse(const char* at, size_t size) {
  if (draining_) return true;
  while (size > 0) {
    if (away_) {
      unparsed_.append(at, size);
      return true;
    }
    if (file_ && file_->taking()) {
      size_t take = file_->take(at, size);
      at += take;
      size -= take;
      if (file_->ready()) sendAway();
      continue;
    }
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

bool TcpServerConnection::begin(const char* bytes) {
  auto header = wire::readHeader(bytes);
  if (!header) return false;
  afterLarge_ = false;
  if (header->ofFile()) return beginFile(*header);
  BufferRef buffer = header->size == 0 ? nullptr : server_.registry_.forPeer(header->address, header->size);
  if (!buffer) {
    // Peers with the older framing learn of a refusal only by the close.
    if (header->acknowledged()) refuse();
    else server_.metrics_.refusedByServer.fetch_add(1, std::memory_order_relaxed);
    return header->acknowledged();
  }
  acknowledge_ = header->acknowledged();
  afterLarge_ = header->write() && header->size >= DIRECT_BYTES;
  if (header->write()) {
    body_ = std::move(buffer);
    bodyAt_ = header->address;
    bodyLeft_ = header->size;
    return true;
  }
  if (acknowledge_) out_.push_back({nullptr, 0, wire::STATUS_BYTES, wire::STATUS_OK, nullptr});
  server_.metrics_.servedBytes.fetch_add(header->size, std::memory_order_relaxed);
  out_.push_back({std::move(buffer), header->address, header->size, 0, nullptr});
  return true;
}

void TcpServerConnection::advanceBody(uint64_t bytes) {
  bodyAt_ += bytes;
  bodyLeft_ -= bytes;
  server_.metrics_.servedBytes.fetch_add(bytes, std::memory_order_relaxed);
  if (bodyLeft_ > 0) return;
  body_.reset();
  if (acknowledge_) out_.push_back({nullptr, 0, wire::STATUS_BYTES, wire::STATUS_OK, nullptr});
}

bool TcpServerConnection::flush() {
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
      char* base = piece.buffer || piece.chunk ? reinterpret_cast<char*>(piece.address) : reinterpret_cast<char*>(&piece.status);
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

}  // namespace svc
