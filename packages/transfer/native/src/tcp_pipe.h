// One connection to a peer's data port: requests pipelined, gathered into few writes, acknowledged in order.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "base.h"
#include "slice.h"
#include "spin.h"
#include "wire.h"

namespace svc {

/** Not thread-safe: belongs to a caller for the time of a call, or to the loop under its lane's mutex. */
class TcpPipe {
 public:
  /** Requests sent and not yet acknowledged hold at most this much, a larger single request apart. */
  static constexpr uint64_t WINDOW_BYTES = 8 << 20;
  static constexpr size_t WINDOW_SLICES = 4096;

  enum class Step { Moved, Blocked, Broken };

  /** With the name of a file segment: the connection opens that before anything else, and its requests are of it. */
  explicit TcpPipe(Fd fd, const std::string& file = "", uint64_t pollUs = 0);
  /** For the caller that waits for answers of this connection. */
  Spin& spin() { return spin_; }
  int fd() const { return fd_.get(); }
  void push(const Slice& slice) {
    slices_.push_back(slice);
    nextDeadlineNs_ = std::min(nextDeadlineNs_, slice.deadlineNs);
  }
  bool empty() const { return slices_.empty(); }
  /** None of them is due before. */
  uint64_t nextDeadlineNs() const { return nextDeadlineNs_; }
  /** Takes out what is past its deadline and has not begun to be written; true when something that has is late, too. */
  bool expire(uint64_t nowNs, std::vector<Slice>& late);
  /** Something may be written now. */
  bool wantsWrite() const;
  bool awaitsAnswer() const { return sent_ > 0 || sendOffset_ > 0; }

  /** Writes until the socket or the window is full. */
  Step send();
  /** One read; calls `done(slice)` for each that is through. With `wait`, the read may block (SO_RCVTIMEO bounds it). */
  template <typename Done>
  Step receive(Done&& done, bool wait);
  /** After Broken: why, and whether the peer answered the head with a refusal. */
  const std::string& trouble() const { return trouble_; }
  bool refused() const { return refused_; }
  uint64_t acknowledged() const { return acknowledged_; }
  /** What has not been acknowledged, in order; the pipe is of no use afterwards. */
  std::vector<Slice> takeSlices();
  /** The peer refused to open the file segment. */
  bool unopened() const { return unopened_; }

 private:
  Step broken(std::string why) {
    trouble_ = std::move(why);
    return Step::Broken;
  }
  /** One read, each body straight into its place; `through_` is what it ended. */
  Step fill(bool wait);
  Step answered(uint64_t status);
  void finishHead();
  void advanceSent(size_t bytes);

  /** Answers that one read may take. */
  static constexpr size_t ANSWERS = 128;

  Fd fd_;
  std::string file_;
  Spin spin_;
  std::deque<Slice> slices_;  // the one that opens the file segment has no task
  uint64_t nextDeadlineNs_ = ~0ull;
  size_t sent_ = 0;          // slices_[0, sent_) have been written wholly
  uint64_t sendOffset_ = 0;  // bytes of slices_[sent_] written, header included
  uint64_t flightBytes_ = 0;
  // Of the head: its status, of which `statusGot_` bytes are there, and its body.
  uint64_t status_ = 0;
  size_t statusGot_ = 0;
  uint64_t bodyGot_ = 0;
  std::vector<Slice> through_;
  bool refused_ = false, unopened_ = false;
  uint64_t acknowledged_ = 0;
  std::string trouble_;
};

template <typename Done>
TcpPipe::Step TcpPipe::receive(Done&& done, bool wait) {
  through_.clear();
  const Step step = fill(wait);
  for (const Slice& slice : through_) done(slice);
  return step;
}

}  // namespace svc
