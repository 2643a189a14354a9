// One connection to a peer's data port: requests pipelined, gathered into few writes, acknowledged in order.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "base.h"
#include "batch.h"
#include "patience.h"
#include "wire.h"

namespace svc {

/** A piece of a request on its way. */
struct TcpPiece {
  uint64_t local = 0, remote = 0, length = 0;
  Task* task = nullptr;
  uint64_t deadlineNs = 0;
  bool write = false;
  /** Times it was at the head of a connection that broke. */
  uint8_t attempts = 0;
  uint8_t maxAttempts = 2;
  /** At the head of the connection that broke last: the others are not to blame. */
  bool atHead = false;
};

/** Not thread-safe: belongs to a caller for the time of a call, or to the loop under its lane's mutex. */
class TcpPipe {
 public:
  /** Requests sent and not yet acknowledged hold at most this much, a larger single request apart. */
  static constexpr uint64_t WINDOW_BYTES = 8 << 20;
  static constexpr size_t WINDOW_PIECES = 4096;

  enum class Step { Moved, Blocked, Broken };

  /** With the name of a file segment: the connection opens that before anything else, and its requests are of it. */
  explicit TcpPipe(Fd fd, const std::string& file = "", uint64_t pollUs = 0);
  /** For the caller that waits for answers of this connection. */
  Patience& patience() { return patience_; }
  int fd() const { return fd_.get(); }
  void push(const TcpPiece& piece) {
    pieces_.push_back(piece);
    nextDeadlineNs_ = std::min(nextDeadlineNs_, piece.deadlineNs);
  }
  bool empty() const { return pieces_.empty(); }
  /** Takes out what is past its deadline and has not begun to be written; true when something that has is late, too. */
  bool expire(uint64_t nowNs, std::deque<TcpPiece>& late);
  /** Something may be written now. */
  bool wantsWrite() const;
  bool awaitsAnswer() const { return sent_ > 0 || sendOffset_ > 0; }

  /** Writes until the socket or the window is full. */
  Step send();
  /** One read; calls `done(piece)` for each that is through. With `wait`, the read may block (SO_RCVTIMEO bounds it). */
  template <typename Done>
  Step receive(Done&& done, bool wait);
  /** After Broken: why, and whether the peer answered the head with a refusal. */
  const std::string& trouble() const { return trouble_; }
  bool refused() const { return refused_; }
  uint64_t acknowledged() const { return acknowledged_; }
  /** What has not been acknowledged, in order; the pipe is of no use afterwards. */
  std::deque<TcpPiece> takePieces();
  /** The peer refused to open the file segment. */
  bool unopened() const { return unopened_; }

 private:
  Step broken(std::string why) {
    trouble_ = std::move(why);
    return Step::Broken;
  }
  Step fill(bool wait, size_t& direct);
  void advanceSent(size_t bytes);

  static constexpr size_t SCRATCH_BYTES = 256 << 10;
  /** Bodies with more than this left are read into place. */
  static constexpr uint64_t DIRECT_BYTES = 16 << 10;

  Fd fd_;
  std::string file_;
  Patience patience_;
  std::deque<TcpPiece> pieces_;  // the one that opens the file segment has no task
  uint64_t nextDeadlineNs_ = ~0ull;  // none of pieces_ is due before
  size_t sent_ = 0;          // pieces_[0, sent_) have been written wholly
  uint64_t sendOffset_ = 0;  // bytes of pieces_[sent_] written, header included
  uint64_t flightBytes_ = 0;
  std::vector<char> scratch_ = std::vector<char>(SCRATCH_BYTES);
  size_t have_ = 0, at_ = 0;  // scratch_[at_, have_) is read and not parsed
  bool statusSeen_ = false;
  uint64_t bodyGot_ = 0;
  bool refused_ = false, unopened_ = false;
  uint64_t acknowledged_ = 0;
  std::string trouble_;
};

template <typename Done>
TcpPipe::Step TcpPipe::receive(Done&& done, bool wait) {
  size_t direct = 0;
  if (Step step = fill(wait, direct); step != Step::Moved) return step;
  bodyGot_ += direct;
  while (true) {
    if (pieces_.empty() || !awaitsAnswer()) return have_ == at_ ? Step::Moved : broken("the peer sent bytes that nobody asked for");
    TcpPiece& head = pieces_.front();
    if (!statusSeen_) {
      if (have_ - at_ < wire::STATUS_BYTES) return Step::Moved;
      uint64_t status;
      memcpy(&status, scratch_.data() + at_, sizeof status);
      at_ += wire::STATUS_BYTES;
      if (status == wire::STATUS_REFUSED) {
        unopened_ = head.task == nullptr;
        refused_ = !unopened_;
        return broken(unopened_ ? "the owner cannot open " + file_ + ", or serves no files any more" : file_.empty() ? "the peer refused the range" : "the owner of the file did not move the range; its log says why");
      }
      if (status != wire::STATUS_OK) return broken("the peer's status frame is not of this protocol");
      if (sent_ == 0) return broken("the peer answered a request before it had all of it");
      statusSeen_ = true;
    }
    if (!head.write) {
      uint64_t take = std::min<uint64_t>(have_ - at_, head.length - bodyGot_);
      memcpy(reinterpret_cast<char*>(head.local) + bodyGot_, scratch_.data() + at_, take);
      at_ += take;
      bodyGot_ += take;
      if (bodyGot_ < head.length) return Step::Moved;
    }
    TcpPiece through = head;
    pieces_.pop_front();
    sent_--;
    flightBytes_ -= through.length;
    statusSeen_ = false;
    bodyGot_ = 0;
    if (through.task == nullptr) continue;
    acknowledged_++;
    done(through);
  }
}

}  // namespace svc
