// Gather writes of many requests, and reads that take large bodies straight to their place.
#include "tcp_pipe.h"

#include <sys/socket.h>
#include <sys/uio.h>

namespace svc {

namespace {
constexpr size_t GATHER_PIECES = 128;
constexpr uint64_t GATHER_BYTES = 1 << 20;
}  // namespace

TcpPipe::TcpPipe(Fd fd, const std::string& file, uint64_t pollUs) : fd_(std::move(fd)), file_(file), patience_(pollUs * 1000) {
  if (file_.empty()) return;
  TcpPiece opening;
  opening.local = reinterpret_cast<uint64_t>(file_.data());
  opening.length = file_.size();
  opening.write = true;
  pieces_.push_back(opening);
}

bool TcpPipe::expire(uint64_t nowNs, std::deque<TcpPiece>& late) {
  if (nowNs < nextDeadlineNs_) return false;
  nextDeadlineNs_ = ~0ull;
  bool begunIsLate = false;
  const size_t begun = sent_ + (sendOffset_ > 0 ? 1 : 0);
  std::deque<TcpPiece> kept;
  for (size_t i = 0; i < pieces_.size(); i++) {
    TcpPiece& piece = pieces_[i];
    const bool isLate = piece.task != nullptr && nowNs >= piece.deadlineNs;
    if (isLate && i >= begun) {
      late.push_back(piece);
      continue;
    }
    begunIsLate |= isLate;
    if (piece.task != nullptr) nextDeadlineNs_ = std::min(nextDeadlineNs_, piece.deadlineNs);
    kept.push_back(piece);
  }
  pieces_.swap(kept);
  return begunIsLate;
}

std::deque<TcpPiece> TcpPipe::takePieces() {
  if (!pieces_.empty() && pieces_.front().task == nullptr) pieces_.pop_front();
  return std::move(pieces_);
}

bool TcpPipe::wantsWrite() const {
  if (sendOffset_ > 0) return true;
  if (sent_ >= pieces_.size() || sent_ >= WINDOW_PIECES) return false;
  return flightBytes_ == 0 || flightBytes_ + pieces_[sent_].length <= WINDOW_BYTES;
}

TcpPipe::Step TcpPipe::send() {
  char headers[GATHER_PIECES][wire::HEADER_BYTES];
  iovec parts[GATHER_PIECES * 2];
  bool moved = false;
  while (wantsWrite()) {
    size_t count = 0, built = 0;
    uint64_t bytes = 0, flight = flightBytes_, skip = sendOffset_;
    for (size_t i = sent_; i < pieces_.size() && built < GATHER_PIECES && bytes < GATHER_BYTES; i++, built++) {
      const TcpPiece& piece = pieces_[i];
      if (skip == 0 && ((flight > 0 && flight + piece.length > WINDOW_BYTES) || i >= WINDOW_PIECES)) break;
      flight += piece.length;
      if (skip < wire::HEADER_BYTES) {
        uint8_t opcode = (piece.write ? wire::OP_WRITE : wire::OP_READ) | wire::OP_ACKNOWLEDGED;
        if (!file_.empty()) opcode |= wire::OP_FILE;
        if (piece.task == nullptr) opcode |= wire::OP_OPEN;
        wire::putHeader(headers[built], {piece.length, piece.remote, opcode});
        parts[count++] = {headers[built] + skip, wire::HEADER_BYTES - skip};
        bytes += wire::HEADER_BYTES - skip;
        skip = 0;
      } else {
        skip -= wire::HEADER_BYTES;
      }
      if (piece.write) {
        uint64_t length = std::min(piece.length - skip, GATHER_BYTES);
        parts[count++] = {reinterpret_cast<char*>(piece.local) + skip, length};
        bytes += length;
        if (length < piece.length - skip) break;
      }
      skip = 0;
    }
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    ssize_t n = sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN) return moved ? Step::Moved : Step::Blocked;
      // A refusal may lie unread in front of the reset: the caller reads before it gives up.
      return broken("writing to the peer: " + errnoText());
    }
    moved = true;
    advanceSent(size_t(n));
    if (uint64_t(n) < bytes) return Step::Moved;
  }
  return moved ? Step::Moved : Step::Blocked;
}

void TcpPipe::advanceSent(size_t bytes) {
  while (bytes > 0) {
    const TcpPiece& piece = pieces_[sent_];
    uint64_t left = wire::HEADER_BYTES + (piece.write ? piece.length : 0) - sendOffset_;
    if (bytes < left) {
      sendOffset_ += bytes;
      return;
    }
    bytes -= left;
    sendOffset_ = 0;
    flightBytes_ += piece.length;
    sent_++;
  }
}

TcpPipe::Step TcpPipe::fill(bool wait, size_t& direct) {
  if (at_ == have_) at_ = have_ = 0;
  if (at_ > 0) {
    memmove(scratch_.data(), scratch_.data() + at_, have_ - at_);
    have_ -= at_;
    at_ = 0;
  }
  iovec parts[2];
  size_t count = 0, wanted = 0;
  if (statusSeen_ && have_ == 0 && !pieces_.empty() && !pieces_.front().write) {
    const TcpPiece& head = pieces_.front();
    if (uint64_t left = head.length - bodyGot_; left >= DIRECT_BYTES) {
      wanted = left;
      parts[count++] = {reinterpret_cast<char*>(head.local) + bodyGot_, left};
    }
  }
  parts[count++] = {scratch_.data() + have_, scratch_.size() - have_};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  ssize_t n;
  do {
    n = recvmsg(fd_.get(), &message, wait ? 0 : MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n == 0) return broken("the peer closed the connection");
  if (n < 0) return errno == EAGAIN ? Step::Blocked : broken("reading from the peer: " + errnoText());
  direct = std::min(wanted, size_t(n));
  have_ += size_t(n) - direct;
  return Step::Moved;
}

}  // namespace svc
