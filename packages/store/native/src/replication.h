// Several masters and one log: a leader ships each frame to its standbys, and what they have decides which answers leave.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "replication_stream.h"
#include "snapshot.h"
#include "tail.h"

namespace svc {

struct ReplicationTimes {
  // A standby hears the leader this often, and takes over after this much silence.
  u64 beatMs = 100, silenceMs = 600;
  // A standby that says or keeps nothing for so long is given up.
  u64 standbyMs = 1'000;
  // A leader that heard neither its standbys nor etcd for so long answers nothing; a new one changes nothing for as long.
  u64 leaseMs = 500;
  u64 unsentBytes = 64 << 20;
  // Of the log's end is kept in memory for standbys that were away.
  u64 resumeBytes = 0;
};

class Replication {
 public:
  enum class Told { peer, caughtUp, peerLost, followed, followLost, handover };
  using Tell = std::function<void(Told what, u64 id, std::string text)>;
  // Slots of the thread's epoll that are ours.
  static constexpr u32 firstSlot = ~u32{0} - 64, listenSlot = firstSlot, followSlot = firstSlot + 1, peerSlots = firstSlot + 2, mostPeers = 16;

  Replication(Store& store, Log& log, Snapshot& snapshot) : store_(store), log_(log), snapshot_(snapshot) {}
  // Before anything else; without it there is one master, and all that follows says so.
  void configure(const ReplicationTimes& times, bool sync, u64 snapshotBytes, int epoll, Tell tell);
  bool on() const { return on_; }
  static bool owns(u32 slot) { return slot >= firstSlot && slot < peerSlots + mostPeers; }
  void onEvent(u32 slot, u32 events, u64 nowMs);
  // What is due: beats, silence, slices of a state that goes out or to disk. True while there is more.
  bool turn(u64 nowMs);
  void listener(int fd) { listener_ = fd; }

  // The leader's part.
  void lead(u64 epoch, u64 nowMs, u64 holdMs);
  // Call once all that is pending was written; what follows is shipped.
  void admit(u64 peer, std::string_view self, bool mayResume, u64 nowMs);
  // Standbys that went on from what they had, and those that took in the whole state.
  u64 resumes = 0, wholes = 0;
  void refuse(u64 peer, std::string_view why);
  // Neither its acknowledgements nor its silence count any more: it is not in the set.
  void forget(u64 peer);
  void ship(std::string_view frame);
  void flush();
  // Whether `peer` has all that was ever logged; and it is told to lead.
  bool hasAll(u64 peer) const;
  void handOver(u64 peer, u64 epoch);
  // etcd said at that time that we lead.
  void contacted(u64 atMs) { contactMs_ = std::max(contactMs_, atMs); }
  u64 committed(u64 durable, u64 nowMs) const;
  bool leased(u64 nowMs) const;
  bool leads() const { return leads_; }
  // Nothing is answered any more: the lead goes to another.
  void retire(bool retires) { retired_ = retires; }
  bool retired() const { return retired_; }
  // How long ago each that counts was heard for certain; the greatest.
  u64 contactAgeMs(u64 nowMs) const;
  // JSON, for people.
  std::string describe(u64 nowMs) const;

  // The standby's part. `fresh`: it has no state of its own; another one cannot take in a leader's.
  void follow(int fd, u64 epoch, std::string_view hello, bool fresh, u64 nowMs);
  void unfollow();
  // Whether it came to have all that a leader had.
  bool followed() const { return followed_; }
  // What was read from disk is the beginning of some leader's log.
  void recovered(bool intact) { intact_ = intact; }
  // Its own acknowledgement goes out as soon as its log is on disk.
  void onDurable() { acknowledge(); }

 private:
  struct Peer {
    enum class State : u8 { greeting, asking, syncing, saving, live, gone };
    u64 id = 0;
    // What it said it has: all before this record, of that reign.
    u64 nextLsn = 0;
    u32 reign = 0;
    State state = State::greeting;
    Stream stream;
    std::string name;
    bool required = false, told = false, watchesOut = false;
    u64 acked = 0, requiredFrom = 0, markLsn = 0, markMs = 0, heardMs = 0, echoMs = 0;
    u32 cursor = 1;
  };
  enum class State : u8 { none, asking, syncing, saving, resuming, live };

  u64 lastLsn() const { return store_.journal.nextLsn - 1; }
  Peer* peerOf(u64 id);
  const Peer* peerOf(u64 id) const;
  void accept(u64 nowMs);
  void watch(int fd, u32 slot, bool out, bool add);
  bool fromStandby(Peer& peer, const StreamHead& head, std::string_view payload, u64 nowMs);
  void lose(Peer& peer, const char* why);
  bool resume(Peer& peer, std::string_view self);
  void caughtUp(Peer& peer);
  bool slice(Peer& peer);
  bool leaderTurn(u64 nowMs);

  bool fromLeader(const StreamHead& head, std::string_view payload, u64 nowMs);
  bool begins(const StreamHead& head, std::string_view payload);
  bool isReady();
  bool goesOn(const StreamHead& head, std::string_view payload);
  bool apply(std::string_view records, u32 count);
  bool takeFrame(std::string_view frame);
  void acknowledge();
  void leave(const std::string& why);
  bool standbyTurn(u64 nowMs);

  Store& store_;
  Log& log_;
  Snapshot& snapshot_;
  ReplicationTimes times_;
  Tail tail_;
  Tell tell_;
  bool on_ = false, sync_ = true, leads_ = false, retired_ = false;
  int epoll_ = -1, listener_ = -1;
  u64 epoch_ = 0, snapshotBytes_ = 0;

  std::vector<std::unique_ptr<Peer>> peers_;
  u64 lastPeer_ = 0, beatAtMs_ = 0, contactMs_ = 0, holdUntilMs_ = 0, holdLsn_ = 0;

  State state_ = State::none;
  Stream leader_;
  // `intact_`: what it has, in memory and on disk, is the beginning of some leader's log.
  bool fresh_ = false, followed_ = false, followsOut_ = false, began_ = false, intact_ = false;
  u64 heardMs_ = 0, echoMs_ = 0, ackedLsn_ = 0, ackedEchoMs_ = 0, savedBefore_ = 0;
};

}  // namespace svc
