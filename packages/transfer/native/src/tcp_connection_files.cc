// A connection's requests of a file segment, which go to the work pool and back chunk by chunk.
#include "tcp_connection.h"

namespace svc {

void TcpServerConnection::sendAway() {
  away_ = true;
  loop_.remove(fd_.get());
  auto work = [self = shared_from_this()] {
    bool moved = self->file_->work();
    self->loop_.post([self, moved] { self->comeBack(moved); });
  };
  // If posting fails, the engine is stopping and will close this connection shortly.
  const auto& post = file_->fills() ? server_.files_.postFilled : server_.files_.post;
  post(reinterpret_cast<uint64_t>(this) >> 6, work);
}

void TcpServerConnection::comeBack(bool moved) {
  if (!fd_) return;
  away_ = false;
  lastActiveMs_ = nowMs();
  // After a read's status has been sent, its failure can only be signalled by closing.
  if (!moved && fileAnswered_) return close();
  if (!moved) {
    refuse();
  } else if (file_->reads()) {
    size_t size = 0;
    auto chunk = file_->giveChunk(size);
    if (!fileAnswered_) out_.push_back({nullptr, 0, wire::STATUS_BYTES, wire::STATUS_OK, nullptr});
    fileAnswered_ = true;
    server_.metrics_.servedBytes.fetch_add(size, std::memory_order_relaxed);
    out_.push_back({nullptr, reinterpret_cast<uint64_t>(chunk.get()), size, 0, chunk});
  } else if (file_->over()) {
    out_.push_back({nullptr, 0, wire::STATUS_BYTES, wire::STATUS_OK, nullptr});
  }
  watched_ = EPOLLIN;
  if (!loop_.add(fd_.get(), watched_, this) || !flush() || !proceed()) return close();
  if (!away_) watch();
}

bool TcpServerConnection::proceed() {
  while (!away_ && out_.empty() && !draining_) {
    if (file_ && file_->reads() && file_->ready()) {
      sendAway();
    } else if (!unparsed_.empty()) {
      std::string bytes = std::move(unparsed_);
      unparsed_.clear();
      if (!parse(bytes.data(), bytes.size()) || !(away_ || flush())) return false;
    } else {
      return true;
    }
  }
  return true;
}

bool TcpServerConnection::beginFile(const wire::Header& header) {
  if (header.opensFile() && !file_ && server_.fileSessions_ < TcpServer::MAX_FILE_SESSIONS) {
    file_ = std::make_unique<FileSession>(server_.files_);
    server_.fileSessions_++;
  }
  if (!file_ || header.size == 0 || !file_->begin(header)) {
    refuse();
    return true;
  }
  fileAnswered_ = false;
  if (file_->reads()) sendAway();
  return true;
}

}  // namespace svc
