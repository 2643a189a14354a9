// The last frames of the log in memory, for a standby that was disconnected for a moment.
#pragma once
#include <algorithm>
#include <deque>

#include "log/log.h"

namespace svc {

class Tail {
 public:
  void bound(u64 bytes) { mostBytes_ = bytes; }
  void add(std::string_view frame) {
    FrameHeader header;
    std::memcpy(&header, frame.data(), sizeof header);
    bytes_ += frame.size();
    frames_.push_back({header.firstLsn, std::string(frame)});
    for (; bytes_ > mostBytes_; frames_.pop_front()) bytes_ -= frames_.front().text.size();
  }
  void clear() {
    frames_.clear();
    bytes_ = 0;
  }
  // Visits each frame from the one that begins with `lsn`; false if it is not kept. `end` is the record after the last one.
  template <typename Each>
  bool from(u64 lsn, u64 end, Each each) const {
    auto at = std::lower_bound(frames_.begin(), frames_.end(), lsn, [](const Frame& frame, u64 wanted) { return frame.firstLsn < wanted; });
    if (at == frames_.end() || at->firstLsn != lsn) return lsn == end;
    for (; at != frames_.end(); ++at) each(std::string_view(at->text));
    return true;
  }

 private:
  struct Frame {
    u64 firstLsn;
    std::string text;
  };
  std::deque<Frame> frames_;
  u64 bytes_ = 0, mostBytes_ = 0;
};

}  // namespace svc
