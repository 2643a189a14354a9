// The thread that answers: connections, frames, the store's slices, and the log before every answer.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "access.h"
#include "fair_mutex.h"
#include "operations.h"
#include "replication.h"

namespace svc {

struct Limits {
  u32 frameBytes = 64 << 20, connections = 20'000, httpConnections = 4'096, framesPerTurn = 64;
  // What waits to be sent on one connection before nothing more is read from it, and all buffers together.
  u64 unsentBytes = 8 << 20, totalBytes = u64{1} << 30;
  u64 halfFrameMs = 30'000;
  u64 snapshotBytes = 256 << 20;
};

enum class EventKind : u8 { request = 0, unknown = 1, malformed = 2, probe = 3, client = 4, recovered = 5, durable = 6, trouble = 7, batches = 8, http = 9, denied = 10,
                              standing = 11, peer = 12, caughtUp = 13, peerLost = 14, followed = 15, followLost = 16, handover = 17 };

struct Event {
  EventKind kind;
  u64 id = 0;  // connection, segment, client or LSN
  u32 seq = 0, function = 0;
  std::string body;
};

class Server {
 public:
  Server(const Settings& settings, const Limits& limits, Log::Options log, std::function<void(Event)> tell);
  ~Server();

  // The port that was bound; throws std::runtime_error.
  u16 listen(const std::string& host, u16 port) { return listenAt(listener_, listenSlot, host, port); }
  // HTTP: `fast` answers GET /query_key here; connections that ask anything else go to the script, with what they sent.
  u16 listenHttp(const std::string& host, u16 port, bool fast) {
    answersHttp_ = fast;
    return listenAt(httpListener_, httpSlot, host, port);
  }
  // Begins to answer, and to recover.
  void start();
  // Begins as one of several masters that does not lead: what it has is read where `recovers`, and it answers nothing about keys.
  // `needed`: nobody else has it for certain, so what cannot be read stops the start.
  void startStandby(bool recovers, bool needed);
  // Where other masters follow this one.
  u16 listenPeers(const std::string& host, u16 port) { return listenAt(peerListener_, Replication::listenSlot, host, port); }
  // Follows the leader at a numeric address; what comes of it is told.
  void follow(const std::string& host, u16 port, u64 epoch, std::string_view hello);
  // Takes the lead: the store is settled, changes are answered once `holdMs` are over. `view`: what clients know this lead by.
  void lead(u64 epoch, u64 holdMs, i64 view);
  template <typename Use>
  auto withReplication(Use use) {
    const std::lock_guard lock(mutex_);
    struct Wake {
      Server& server;
      ~Wake() { server.wake(); }
    } wake{*this};
    if (serving()) writeLog();
    return use(replication_, nowMs());
  }
  // Whether answers about keys may be given: a leader that heard from nobody for too long gives none.
  bool leased() {
    const std::lock_guard lock(mutex_);
    return serving() && replication_.leased(nowMs());
  }
  void stop();
  // A refusal tells nothing of the state, and waits for no record.
  void answer(u64 connection, u32 seq, u8 error, std::string_view body, bool refusal);
  // What the key that a connection showed allows; with none it is closed after the answer. Its peer.
  std::string authorize(u64 connection, Rights rights, std::string tenant);
  // What a connection may do, and the tenant of its key; none once it is gone.
  std::pair<Rights, std::string> callerOf(u64 connection);

  bool serving() const { return serving_.load(std::memory_order_acquire); }
  // The store, between two turns of the thread that answers. Never while it recovers.
  template <typename Use>
  auto with(Use use) {
    const std::lock_guard lock(mutex_);
    store.at(nowMs());
    return use();
  }
  // The same for changes: their records are written, and what waits for them goes on.
  template <typename Use>
  auto change(Use use) {
    const std::lock_guard lock(mutex_);
    store.at(nowMs());
    struct Wake {
      Server& server;
      ~Wake() { server.wake(); }
    } wake{*this};
    return use();
  }
  // Tells once everything up to now is as safe as the settings ask.
  void tellDurable();
  // Each durable batch of KV events from a number on, until `take` has enough.
  template <typename Take>
  void eachBatch(u64 from, Take take) {
    for (const KvEvents::Batch& batch : store.events.queue()) {
      if (batch.lsn > committed()) return;
      if (batch.sequence >= from && !take(batch)) return;
    }
  }
  // An empty batch behind a dump, where no other one follows: unlike those of the dump it is kept, so that whoever read the dump is known by it.
  void endDump(u64 end);
  // From now on the script is told again when there is more to publish.
  void tellBatchesAgain() { toldBatches_ = false; }
  // For that many bytes of records beside what any call may write.
  bool room(u64 more = 0) { return log_.room((u64{1} << 20) + more, store.nowMs()); }
  bool logFull() const { return logFull_.load(std::memory_order_relaxed); }

  Store store;
  Operations operations;
  // Set before the start.
  Access access;
  std::atomic<u64> connections{0}, httpConnections{0}, accepted{0}, refused{0}, malformed{0}, bufferedBytes{0};
  const Snapshot& snapshot() const { return snapshot_; }
  const Log& log() const { return log_; }
  // The last record that every master has that answers wait for.
  u64 committed() const { return replication_.committed(log_.durableLsn(), nowMs()); }
  void configureReplication(const ReplicationTimes& times, bool sync);

 private:
  struct Connection {
    int fd = -1;
    u32 generation = 0;
    bool waiting = false;   // for the script's answer
    bool http = false, leaving = false;  // to the script, once what is to be sent was sent
    bool ready = false;     // has whole frames that were not looked at
    bool touched = false;   // got an answer in this turn
    bool closing = false, watchesOut = false, paused = false;
    Rights rights = Rights::none;
    u64 heardMs = 0, begunMs = 0;
    std::string in, out, tenant;
    std::size_t inAt = 0, counted = 0;
    std::size_t filled = 0;  // of `in`, since it was allocated: what was never written takes no memory
    u64 appended = 0, sent = 0, sendable = 0;  // bytes since the connection began
  };
  struct Waiting {
    u64 lsn;
    u32 slot, generation;
    u64 until;
  };

  // A put that found no space: others of its connection, which may be what it waits for, pass it.
  struct Starved {
    u32 slot, generation;
    u64 untilMs;
    Request request;
    std::string body;
  };
  static constexpr std::size_t mostStarved = 1'024, mostStarvedBytes = 64 << 10;
  // Where a wait was in vain, the next puts are refused at once for as long.
  static constexpr u64 refusesForMs = 200;

  // Closed after everything that may still use it.
  struct Descriptor {
    int fd = -1;
    ~Descriptor();
  };

  // What a quiet connection may keep in each of its buffers.
  static constexpr std::size_t keptBytes = 4 << 10;
  static constexpr u32 wakeSlot = ~u32{0}, listenSlot = wakeSlot - 1, httpSlot = wakeSlot - 2;

  u64 nowMs() const;
  // Of the system's clock, as events tell it.
  static u64 unixMs();
  void run();
  void recover(bool leads);
  std::string noteOf(const Recovery& found, u64 tookMs);
  u16 listenAt(Descriptor& listener, u32 slot, const std::string& host, u16 port);
  void accept(int listener, bool http);
  std::size_t httpRequests(u32 slot, const char* at, std::size_t size);
  void handOff(u32 slot);
  void readFrom(u32 slot);
  // Takes whole frames off the bytes; how many bytes that were.
  std::size_t frames(u32 slot, const char* at, std::size_t size);
  void takeBacklog(u32 slot);
  void handOver(u32 slot, const Request& request, const char* body, EventKind kind);
  void refuseFrame(u32 slot, const Request& request);
  void refuseCall(u32 slot, const Request& request, u8 error, const std::string& body);
  void tellDenied(u32 slot, u32 function);
  Connection* connectionOf(u64 id);
  void touch(u32 slot);
  void appended(u32 slot, std::size_t bytes, bool refusal);
  void release();
  void send(u32 slot);
  void watch(u32 slot);
  void shrink(Connection& connection);
  void drop(u32 slot, bool closes = true);
  void sweep();
  void account(Connection& connection);
  void makeRoom(Connection& connection);
  void trim(Connection& connection);
  void wake();
  void tendStore();
  // Runs a call, and answers it or hands it over. One that finds no space comes back until then; 0 for a new one.
  void serve(u32 slot, const Request& request, const char* body, u64 starvedUntilMs);
  // Once something came free, or its time is over.
  void serveStarved();
  void writeLog();
  void tellBatches();
  u64 idOf(u32 slot) const { return (u64{conns_[slot].generation} << 20) | slot; }

  Limits limits_;
  FairMutex mutex_;
  Descriptor epoll_, wake_, listener_, httpListener_;
  bool answersHttp_ = false;
  Log log_;
  Snapshot snapshot_;
  std::deque<Starved> starved_;  // in the order of their ends
  u64 freedSeen_ = 0, starvesAgainMs_ = 0;
  Replication replication_;
  Descriptor peerListener_;
  std::function<void(Event)> tell_;
  std::vector<Connection> conns_;
  std::vector<u32> free_, ready_, touched_;
  std::deque<Waiting> waits_;
  std::deque<u64> durableWaits_;
  std::vector<char> scratch_;
  std::atomic<bool> serving_{false}, standing_{false}, ending_{false}, logFull_{false};
  // Of a standby that neither read a log nor followed anybody: it may take in a leader's state.
  bool fresh_ = false, needed_ = true;
  std::atomic<bool> woken_{false};
  bool more_ = false, wasStuck_ = false, toldBatches_ = false;
  u64 denied_ = 0, deniedAtMs_ = 0;  // calls without a key since the script was told, and when it is told again
  u64 sweepAtMs_ = 0, begunMs_ = 0, snapshotAtMs_ = 0;
  std::thread thread_, recovering_;
};

}  // namespace svc
