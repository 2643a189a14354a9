// The standby's side: takes in the leader's state, applies and keeps each frame, and only then acknowledges it.
#include <sys/epoll.h>
#include <sys/socket.h>

#include "replication/replication.h"

namespace svc {

void Replication::follow(int fd, u64 epoch, std::string_view hello, bool fresh, u64 nowMs) {
  leader_.take(fd);
  epoch_ = epoch;
  fresh_ = fresh && !began_;
  state_ = State::asking;
  ackedLsn_ = echoMs_ = ackedEchoMs_ = 0;
  heardMs_ = nowMs;
  followsOut_ = true;
  StreamHead head;
  head.type = Message::hello;
  head.epoch = epoch;
  if (intact_ && log_.term() != 0 && !log_.stuck()) {
    head.lsn = store_.journal.nextLsn;
    head.sentMs = log_.term();
  }
  leader_.say(head, hello);
  watch(fd, followSlot, true, true);
}

void Replication::unfollow() {
  leader_.close();
  state_ = State::none;
}

void Replication::leave(const std::string& why) {
  if (state_ == State::none) return;
  unfollow();
  emit_(Notice::followLost, 0, why);
}

bool Replication::fromLeader(const StreamHead& head, std::string_view payload, u64 nowMs) {
  // Messages of an earlier leader do not count.
  if (head.epoch < epoch_) return false;
  switch (head.type) {
    case Message::refused:
      leave("refused: " + std::string(payload));
      return false;
    case Message::begin:
      return state_ == State::asking && begins(head, payload);
    case Message::resume:
      return state_ == State::asking && goesOn(head, payload);
    case Message::part:
      return state_ == State::syncing && apply(payload, head.records);
    case Message::whole:
      if (state_ == State::resuming) return isReady();
      if (state_ != State::syncing) return false;
      state_ = State::saving;
      savedBefore_ = snapshot_.taken();
      return true;
    case Message::frame:
      return state_ != State::asking && takeFrame(payload);
    case Message::heartbeat:
      echoMs_ = std::max(echoMs_, head.sentMs);
      heardMs_ = nowMs;
      return true;
    case Message::lead:
      emit_(Notice::handover, head.epoch, {});
      return true;
    default:
      return false;
  }
}

bool Replication::begins(const StreamHead& head, std::string_view payload) {
  if (!fresh_) {
    // The next start must not read this log, since it continues no leader's.
    log_.wipe();
    leave("begins anew");
    return false;
  }
  fresh_ = intact_ = false;
  began_ = true;
  epoch_ = head.epoch;
  tail_.clear();
  if (!log_.startAt(head.lsn, static_cast<u32>(head.sentMs))) {
    leave("this master's log cannot be written");
    return false;
  }
  store_.journal.clear();
  store_.journal.nextLsn = head.lsn;
  state_ = State::syncing;
  emit_(Notice::followed, 0, std::string(payload));
  return true;
}

// Continues this log with the leader's, which begins where this one ends.
bool Replication::goesOn(const StreamHead& head, std::string_view payload) {
  if (!intact_ || head.lsn != store_.journal.nextLsn) return false;
  fresh_ = false;
  began_ = true;
  epoch_ = head.epoch;
  log_.beginTerm(static_cast<u32>(head.sentMs));
  state_ = State::resuming;
  emit_(Notice::followed, 1, std::string(payload));
  return true;
}

bool Replication::isReady() {
  state_ = State::live;
  followed_ = intact_ = true;
  StreamHead head;
  head.type = Message::ready;
  head.epoch = epoch_;
  leader_.say(head);
  return true;
}

bool Replication::apply(std::string_view records, u32 count) {
  const u64 next = store_.journal.nextLsn;
  RecordReader reader(records.data(), records.size());
  u32 applied = 0;
  for (; reader.more(); ++applied)
    if (!store_.replay.apply(reader)) break;
  // A replay logs nothing: records that this one implies are logged by the leader.
  store_.journal.clear();
  store_.journal.nextLsn = next;
  return applied == count && !reader.more() && !reader.failed;
}

bool Replication::takeFrame(std::string_view frame) {
  FrameHeader header;
  if (frame.size() < sizeof header) return false;
  std::memcpy(&header, frame.data(), sizeof header);
  const std::string_view records = frame.substr(sizeof header);
  if (header.magic != frameMagic || header.bytes != records.size() || header.firstLsn != store_.journal.nextLsn) return false;
  if (checksumOf(header, records.data()) != header.checksum || !apply(records, header.records)) return false;
  store_.journal.nextLsn += header.records;
  log_.append(frame, lastLsn());
  tail_.add(frame);
  return true;
}

void Replication::acknowledge() {
  if (leads_ || state_ == State::none || state_ == State::asking) return;
  const u64 durable = log_.durableLsn();
  if (durable == ackedLsn_ && echoMs_ == ackedEchoMs_) return;
  StreamHead head;
  head.type = Message::ack;
  head.epoch = epoch_;
  head.lsn = ackedLsn_ = durable;
  head.sentMs = ackedEchoMs_ = echoMs_;
  leader_.say(head);
  if (!leader_.flush()) leave("the connection to the leader broke");
}

bool Replication::standbyTick(u64 nowMs) {
  bool more = store_.replay.tend();
  log_.flush();
  if (snapshot_.running()) {
    more = snapshot_.some() || more;
  } else if (state_ == State::saving && snapshot_.taken() == savedBefore_) {
    // It takes its own snapshot of the state that it received; after that this disk has all of it.
    if (!snapshot_.saving()) snapshot_.begin();
    more = snapshot_.running() || more;
  } else if (state_ == State::saving) {
    isReady();
  } else if (state_ == State::live && log_.bytesSinceSnapshot() > snapshotBytes_ && !snapshot_.saving()) {
    snapshot_.begin();
  }
  if (state_ == State::none) return more;
  acknowledge();
  if (state_ == State::none) return more;
  if (!leader_.flush()) {
    leave("the connection to the leader broke");
    return more;
  }
  if (const bool blocked = leader_.unsent() > 0; blocked != followsOut_) {
    followsOut_ = blocked;
    watch(leader_.fd(), followSlot, blocked, false);
  }
  // While its hello is unanswered, it waits longer, since the leader may have much to do.
  const u64 silenceBoundMs = state_ == State::asking ? times_.standbyMs * 5 : times_.silenceMs;
  if (nowMs > heardMs_ + silenceBoundMs) leave("the leader said nothing for too long");
  return more;
}

}  // namespace svc
