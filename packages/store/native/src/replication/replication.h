// Replicates one log to several masters: a leader ships each frame to its standbys, whose acknowledgements decide which answers are sent.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "replication/stream.h"
#include "log/snapshot.h"
#include "log/tail.h"

namespace svc {

struct ReplicationTimes {
  // The leader sends a heartbeat this often; a standby takes over after this much silence.
  u64 heartbeatMs = 100, silenceMs = 600;
  // A standby that sends nothing or lags for this long is dropped.
  u64 standbyMs = 1'000;
  // A leader that heard from neither its standbys nor etcd for this long answers nothing; a new leader acknowledges no change for as long.
  u64 leaseMs = 500;
  u64 unsentBytes = 64 << 20;
  // Bytes of the log's end that are kept in memory for standbys that reconnect.
  u64 resumeBytes = 0;
};

class Replication {
 public:
  enum class Notice { peer, caughtUp, peerLost, followed, followLost, handover };
  using Emit = std::function<void(Notice what, u64 id, std::string text)>;
  // Slots of the server's epoll that belong to replication.
  static constexpr u32 firstSlot = ~u32{0} - 64, listenSlot = firstSlot, followSlot = firstSlot + 1, peerSlots = firstSlot + 2, mostPeers = 16;

  Replication(Store& store, Log& log, Snapshot& snapshot) : store_(store), log_(log), snapshot_(snapshot) {}
  // Must be called first. Without it there is a single master, and all other methods behave accordingly.
  void configure(const ReplicationTimes& times, bool sync, u64 snapshotBytes, int epoll, Emit emit);
  bool on() const { return on_; }
  static bool owns(u32 slot) { return slot >= firstSlot && slot < peerSlots + mostPeers; }
  void onEvent(u32 slot, u32 events, u64 nowMs);
  // Does what is due: heartbeats, timeouts, slices of a state to send or to save. True while there is more.
  bool tick(u64 nowMs);
  void listener(int fd) { listener_ = fd; }

  // The leader's part.
  void lead(u64 epoch, u64 nowMs, u64 holdMs);
  // Must be called once all pending records are written; what follows is shipped.
  void admit(u64 peer, std::string_view self, bool mayResume, u64 nowMs);
  // Counts of standbys that resumed from what they had, and of those that took in the whole state.
  u64 resumes = 0, wholes = 0;
  void refuse(u64 peer, std::string_view why);
  // Removes a peer that is no longer in the set: neither its acknowledgements nor its silence count any more.
  void forget(u64 peer);
  void ship(std::string_view frame);
  void flush();
  // `hasAll` returns whether `peer` has every logged record; `handOver` orders it to lead.
  bool hasAll(u64 peer) const;
  void handOver(u64 peer, u64 epoch);
  // etcd confirmed at that time that we lead.
  void contacted(u64 atMs) { contactMs_ = std::max(contactMs_, atMs); }
  u64 committed(u64 durable, u64 nowMs) const;
  bool leased(u64 nowMs) const;
  bool leads() const { return leads_; }
  // Stops all answers, because the lead goes to another master.
  void retire(bool retires) { retired_ = retires; }
  bool retired() const { return retired_; }
  // Returns how long ago every required peer, or else etcd, was certainly heard.
  u64 contactAgeMs(u64 nowMs) const;
  // Returns a JSON report for people.
  std::string describe(u64 nowMs) const;

  // The standby's part. `fresh`: it has no state of its own yet; otherwise it cannot take in a leader's whole state.
  void follow(int fd, u64 epoch, std::string_view hello, bool fresh, u64 nowMs);
  void unfollow();
  // Returns whether it once had everything that a leader had.
  bool followed() const { return followed_; }
  // `intact`: what was read from disk is a prefix of some leader's log.
  void recovered(bool intact) { intact_ = intact; }
  // Called once its log is on disk, so that the acknowledgement is sent at once.
  void onDurable() { acknowledge(); }

 private:
  struct Peer {
    enum class State : u8 { greeting, asking, syncing, saving, live, gone };
    u64 id = 0;
    // The position that its hello claimed: all records before `nextLsn`, under that term.
    u64 nextLsn = 0;
    u32 term = 0;
    State state = State::greeting;
    Stream stream;
    std::string name;
    bool required = false, reported = false, watchesOut = false;
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
  bool leaderTick(u64 nowMs);

  bool fromLeader(const StreamHead& head, std::string_view payload, u64 nowMs);
  bool begins(const StreamHead& head, std::string_view payload);
  bool isReady();
  bool goesOn(const StreamHead& head, std::string_view payload);
  bool apply(std::string_view records, u32 count);
  bool takeFrame(std::string_view frame);
  void acknowledge();
  void leave(const std::string& why);
  bool standbyTick(u64 nowMs);

  Store& store_;
  Log& log_;
  Snapshot& snapshot_;
  ReplicationTimes times_;
  Tail tail_;
  Emit emit_;
  bool on_ = false, sync_ = true, leads_ = false, retired_ = false;
  int epoll_ = -1, listener_ = -1;
  u64 epoch_ = 0, snapshotBytes_ = 0;

  std::vector<std::unique_ptr<Peer>> peers_;
  u64 lastPeer_ = 0, heartbeatAtMs_ = 0, contactMs_ = 0, holdUntilMs_ = 0, holdLsn_ = 0;

  State state_ = State::none;
  Stream leader_;
  // `intact_`: its state, in memory and on disk, is a prefix of some leader's log.
  bool fresh_ = false, followed_ = false, followsOut_ = false, began_ = false, intact_ = false;
  u64 heardMs_ = 0, echoMs_ = 0, ackedLsn_ = 0, ackedEchoMs_ = 0, savedBefore_ = 0;
};

}  // namespace svc
