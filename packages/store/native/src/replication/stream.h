// The stream between masters: the messages of a leader and its standbys, and a socket that sends them without blocking.
#pragma once
#include <string>
#include <string_view>

#include "base/base.h"

namespace svc {

//   standby                                   leader
//      | hello (who it is, what it has) ---->   |
//      |   <--------------- refused (why)       |  ...or
//      |   <-- resume (whose log, from where)   |  ...then frame | frame ... | whole; or
//      |   <--- begin (whose log, from where)   |
//      |   <--- part | frame | part | frame ... |  the state so far in slices, between them what is logged meanwhile
//      |   <--------------------------- whole   |
//      | ready (it is on this disk) --------->  |
//      |   <--------------- frame | heartbeat |
//      | ack (up to this record) ------------>  |
//      |   <----------------------------- lead  |  a planned hand-over
enum class Message : u8 { hello = 1, refused = 2, begin = 3, part = 4, whole = 5, frame = 6, heartbeat = 7, ack = 8, ready = 9, lead = 10, resume = 11 };

struct StreamHead {
  u32 magic = 0x52'43'56'53;
  Message type = Message::heartbeat;
  u8 reserved[3] = {};
  u32 bytes = 0, records = 0;
  // The leadership that it belongs to; a receiver that knows a later one closes the stream.
  u64 epoch = 0;
  // hello, begin, resume: the next record; ack: the last one kept; heartbeat, whole: the leader's last one.
  u64 lsn = 0;
  // heartbeat: the leader's clock; ack: the latest such time received; hello, begin, resume: the term of the log.
  u64 sentMs = 0;
};
static_assert(sizeof(StreamHead) == 40);

class Stream {
 public:
  // The most bytes of one message, and the most that is read per loop iteration.
  static constexpr u32 mostBytes = 80 << 20;
  static constexpr std::size_t turnBytes = 4 << 20;

  Stream() = default;
  explicit Stream(int fd) : fd_(fd) {}
  ~Stream() { close(); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void take(int fd);
  void close();
  std::size_t unsent() const { return out_.size() - sent_; }
  void say(StreamHead head, std::string_view payload = {});
  // Sends as much as the socket takes; false once the connection is broken.
  bool flush();
  // Reads what has arrived and calls `each(head, payload)` for every whole message; false once the connection is broken or `each` is false.
  template <typename Each>
  bool receive(Each each) {
    bool alive = fill();
    std::size_t at = 0;
    while (in_.size() - at >= sizeof(StreamHead)) {
      StreamHead head;
      std::memcpy(&head, in_.data() + at, sizeof head);
      if (head.magic != StreamHead{}.magic || head.bytes > mostBytes) return false;
      if (in_.size() - at - sizeof head < head.bytes) break;
      const std::string_view payload(in_.data() + at + sizeof head, head.bytes);
      at += sizeof head + head.bytes;
      if (!each(head, payload)) return false;
    }
    in_.erase(0, at);
    return alive;
  }

 private:
  bool fill();

  int fd_ = -1;
  std::string in_, out_;
  std::size_t sent_ = 0;
};

}  // namespace svc
