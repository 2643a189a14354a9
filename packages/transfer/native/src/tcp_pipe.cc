// Gathers many requests into one write, and reads large bodies directly into place.
#include "tcp_pipe.h"

#include <sys/socket.h>
#include <sys/uio.h>

namespace svc {

namespace {
constexpr size_t PIPE_SLICES = 128;
constexpr uint64_t GATHER_BYTES = 1 << 20;
}  // namespace

TcpPipe::TcpPipe(Fd fd, const std::string& file, uint64_t pollUs) : fd_(std::move(fd)), file_(file), spin_(pollUs * 1000) {
  if (file_.empty()) return;
  Slice opening;
  opening.local = reinterpret_cast<uint64_t>(file_.data());
  opening.length = file_.size();
  opening.write = true;
  slices_.push_back(opening);
}

bool TcpPipe::expire(uint64_t nowNs, std::vector<Slice>& late) {
  if (nowNs < nextDeadlineNs_) return false;
  nextDeadlineNs_ = ~0ull;
  bool begunIsLate = false;
  const size_t begun = sent_ + (sendOffset_ > 0 ? 1 : 0);
  std::deque<Slice> kept;
  for (size_t i = 0; i < slices_.size(); i++) {
    Slice& slice = slices_[i];
    const bool isLate = slice.task != nullptr && nowNs >= slice.deadlineNs;
    if (isLate && i >= begun) {
      late.push_back(slice);
      continue;
    }
    begunIsLate |= isLate;
    if (slice.task != nullptr) nextDeadlineNs_ = std::min(nextDeadlineNs_, slice.deadlineNs);
    kept.push_back(slice);
  }
  slices_.swap(kept);
  return begunIsLate;
}

std::vector<Slice> TcpPipe::takeSlices() {
  if (!slices_.empty() && slices_.front().task == nullptr) slices_.pop_front();
  std::vector<Slice> taken(slices_.begin(), slices_.end());
  slices_.clear();
  return taken;
}

bool TcpPipe::wantsWrite() const {
  if (sendOffset_ > 0) return true;
  if (sent_ >= slices_.size() || sent_ >= WINDOW_SLICES) return false;
  return flightBytes_ == 0 || flightBytes_ + slices_[sent_].length <= WINDOW_BYTES;
}

TcpPipe::Step TcpPipe::send() {
  char headers[PIPE_SLICES][wire::HEADER_BYTES];
  iovec parts[PIPE_SLICES * 2];
  bool moved = false;
  while (wantsWrite()) {
    size_t count = 0, built = 0;
    uint64_t bytes = 0, flight = flightBytes_, skip = sendOffset_;
    for (size_t i = sent_; i < slices_.size() && built < PIPE_SLICES && bytes < GATHER_BYTES; i++, built++) {
      const Slice& slice = slices_[i];
      if (skip == 0 && ((flight > 0 && flight + slice.length > WINDOW_BYTES) || i >= WINDOW_SLICES)) break;
      flight += slice.length;
      if (skip < wire::HEADER_BYTES) {
        uint8_t opcode = (slice.write ? wire::OP_WRITE : wire::OP_READ) | wire::OP_ACKNOWLEDGED;
        if (!file_.empty()) opcode |= wire::OP_FILE;
        if (slice.task == nullptr) opcode |= wire::OP_OPEN;
        wire::putHeader(headers[built], {slice.length, slice.remote, opcode});
        parts[count++] = {headers[built] + skip, wire::HEADER_BYTES - skip};
        bytes += wire::HEADER_BYTES - skip;
        skip = 0;
      } else {
        skip -= wire::HEADER_BYTES;
      }
      if (slice.write) {
        uint64_t length = std::min(slice.length - skip, GATHER_BYTES);
        parts[count++] = {reinterpret_cast<char*>(slice.local) + skip, length};
        bytes += length;
        if (length < slice.length - skip) break;
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
      // A refusal may be unread in the receive buffer, so the caller reads before it gives up.
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
    const Slice& slice = slices_[sent_];
    uint64_t left = wire::HEADER_BYTES + (slice.write ? slice.length : 0) - sendOffset_;
    if (bytes < left) {
      sendOffset_ += bytes;
      return;
    }
    bytes -= left;
    sendOffset_ = 0;
    flightBytes_ += slice.length;
    sent_++;
  }
}

//  the peer's stream:  status | body | status | body | status | ...      (a write has no body)
//  one scatter read:    statuses[0] | body 0 | statuses[1] | body 1 | ...
TcpPipe::Step TcpPipe::fill(bool wait) {
  uint64_t statuses[ANSWERS];
  iovec parts[ANSWERS * 2];
  size_t count = 0;
  // A request that is not completely written can only be answered by a refusal.
  const size_t due = std::min(ANSWERS, std::max<size_t>(sent_, 1));
  for (size_t i = 0; i < due; i++) {
    const size_t statusGot = i == 0 ? statusGot_ : 0;
    if (statusGot < wire::STATUS_BYTES) {
      char* place = i == 0 ? reinterpret_cast<char*>(&status_) : reinterpret_cast<char*>(&statuses[i]);
      parts[count++] = {place + statusGot, wire::STATUS_BYTES - statusGot};
    }
    if (i >= sent_ || i >= slices_.size() || slices_[i].write) continue;
    const uint64_t bodyGot = i == 0 ? bodyGot_ : 0;
    parts[count++] = {reinterpret_cast<char*>(slices_[i].local) + bodyGot, slices_[i].length - bodyGot};
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  ssize_t n;
  do {
    n = recvmsg(fd_.get(), &message, wait ? 0 : MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n == 0) return broken("the peer closed the connection");
  if (n < 0) return errno == EAGAIN ? Step::Blocked : broken("reading from the peer: " + errnoText());
  uint64_t left = uint64_t(n);
  for (size_t i = 0; left > 0; i++) {
    if (slices_.empty() || !awaitsAnswer()) return broken("the peer sent bytes that answer no request");
    if (statusGot_ < wire::STATUS_BYTES) {
      const size_t take = std::min<uint64_t>(left, wire::STATUS_BYTES - statusGot_);
      if (i > 0) status_ = statuses[i];
      statusGot_ += take;
      left -= take;
      if (statusGot_ < wire::STATUS_BYTES) break;
      if (Step step = answered(status_); step != Step::Moved) return step;
    }
    const Slice& head = slices_.front();
    if (!head.write) {
      const uint64_t take = std::min(left, head.length - bodyGot_);
      bodyGot_ += take;
      left -= take;
      if (bodyGot_ < head.length) break;
    }
    finishHead();
  }
  return Step::Moved;
}

TcpPipe::Step TcpPipe::answered(uint64_t status) {
  if (status == wire::STATUS_REFUSED) {
    unopened_ = slices_.front().task == nullptr;
    refused_ = !unopened_;
    return broken(unopened_ ? "the owner cannot open " + file_ + ", or serves no files any more" : file_.empty() ? "the peer refused the range" : "the owner of the file did not move the range; its log says why");
  }
  if (status != wire::STATUS_OK) return broken("the peer's status frame is not of this protocol");
  if (sent_ == 0) return broken("the peer answered a request before it had all of it");
  return Step::Moved;
}

void TcpPipe::finishHead() {
  const Slice head = slices_.front();
  slices_.pop_front();
  sent_--;
  flightBytes_ -= head.length;
  statusGot_ = 0;
  bodyGot_ = 0;
  if (head.task == nullptr) return;
  acknowledged_++;
  through_.push_back(head);
}

}  // namespace svc
