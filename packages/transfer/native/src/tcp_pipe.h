// One connection to a peer's data port: requests are pipelined, gathered into few writes, and acknowledged in order.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "base.h"
#include "slice.h"
#include "spin.h"
#include "wire.h"

namespace svc {

/** Not thread-safe: it belongs to a caller during a call, or to the loop under its lane's mutex. */
class TcpPipe {
 public:
  /** The limit of bytes sent but not acknowledged; a single larger request is allowed. */
  static constexpr uint64_t WINDOW_BYTES = 8 << 20;
  static constexpr size_t WINDOW_SLICES = 4096;

  enum class Step { Moved, Blocked, Broken };

  /** With a file segment's name the connection opens that segment first, and all requests refer to it. */
  explicit TcpPipe(Fd fd, const std::string& file = "", uint64_t pollUs = 0);
  /** For a caller that waits for answers of this connection. */
  Spin& spin() { return spin_; }
  int fd() const { return fd_.get(); }
  void push(const Slice& slice) {
    slices_.push_back(slice);
    nextDeadlineNs_ = std::min(nextDeadlineNs_, slice.deadlineNs);
  }
  bool empty() const { return slices_.empty(); }
  /** No request is due before this time. */
  uint64_t nextDeadlineNs() const { return nextDeadlineNs_; }
  /** Removes late requests that have not begun to be written. Returns true if one that has begun is late, too. */
  bool expire(uint64_t nowNs, std::vector<Slice>& late);
  /** True if there is something to write and the window allows it. */
  bool wantsWrite() const;
  bool awaitsAnswer() const { return sent_ > 0 || sendOffset_ > 0; }

  /** Writes until the socket or the window is full. */
  Step send();
  /** Performs one read and calls `done(slice)` for each completed slice. With `wait` the read may block (SO_RCVTIMEO limits it). */
  template <typename Done>
  Step receive(Done&& done, bool wait);
  /** After Broken: the reason, and whether the peer refused the request at the head. */
  const std::string& trouble() const { return trouble_; }
  bool refused() const { return refused_; }
  uint64_t acknowledged() const { return acknowledged_; }
  /** Returns the unacknowledged slices in order; the pipe cannot be used afterwards. */
  std::vector<Slice> takeSlices();
  /** True if the peer refused to open the file segment. */
  bool unopened() const { return unopened_; }

 private:
  Step broken(std::string why) {
    trouble_ = std::move(why);
    return Step::Broken;
  }
  /** Performs one read, with each body directly into place; `through_` receives the completed slices. */
  Step fill(bool wait);
  Step answered(uint64_t status);
  void finishHead();
  void advanceSent(size_t bytes);

  /** The maximum number of answers in one read. */
  static constexpr size_t ANSWERS = 128;

  Fd fd_;
  std::string file_;
  Spin spin_;
  std::deque<Slice> slices_;  // the slice that opens a file segment has no task
  uint64_t nextDeadlineNs_ = ~0ull;
  size_t sent_ = 0;          // slices_[0, sent_) are completely written
  uint64_t sendOffset_ = 0;  // bytes of slices_[sent_] written, header included
  uint64_t flightBytes_ = 0;
  // For the request at the head: its status, of which `statusGot_` bytes have arrived, and the bytes of its body so far.
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
