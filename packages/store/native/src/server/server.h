// The server thread: connections, frames, the store's background slices, and the log that is written before every answer.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "server/access.h"
#include "base/fair_mutex.h"
#include "rpc/operations.h"
#include "replication/replication.h"

namespace svc {

struct Limits {
  u32 frameBytes = 64 << 20, connections = 20'000, httpConnections = 4'096, framesPerIteration = 64;
  // Unsent bytes of one connection before reading from it stops, and the limit of all buffers together.
  u64 unsentBytes = 8 << 20, totalBytes = u64{1} << 30;
  u64 halfFrameMs = 30'000;
  u64 snapshotBytes = 256 << 20;
};

#define SVC_EVENTS(each) \
  each(request, "request") each(unknown, "unknown") each(malformed, "malformed") each(probe, "probe") each(client, "client") \
  each(recovered, "recovered") each(durable, "durable") each(trouble, "trouble") each(batches, "batches") each(http, "http") \
  each(denied, "denied") each(standing, "standing") each(peer, "peer") each(caughtUp, "caughtUp") each(peerLost, "peerLost") \
  each(followed, "followed") each(followLost, "followLost") each(handover, "handover")
enum class EventKind : u8 { SVC_EVENTS(SVC_VALUE) };
inline constexpr const char* eventNames[] = {SVC_EVENTS(SVC_NAME)};

struct Event {
  EventKind kind;
  u64 id = 0;  // connection, segment, client or LSN
  u32 seq = 0, function = 0;
  std::string body;
};

class Server {
 public:
  Server(const Settings& settings, const Limits& limits, Log::Options log, std::function<void(Event)> emit);
  ~Server();

  // Returns the bound port; throws std::runtime_error.
  u16 listen(const std::string& host, u16 port) { return listenAt(listener_, listenSlot, host, port); }
  // With `fast`, GET /query_key is answered natively; connections that send anything else go to JavaScript with the bytes they sent.
  u16 listenHttp(const std::string& host, u16 port, bool fast) {
    answersHttp_ = fast;
    return listenAt(httpListener_, httpSlot, host, port);
  }
  // Begins to recover and to answer.
  void start();
  // Starts one of several masters as a standby, which answers nothing about keys. `recovers`: it reads its log first. `needed`: no other
  // master certainly has its state, so a log that cannot be read stops the start.
  void startStandby(bool recovers, bool needed);
  // Listens for standbys of this master.
  u16 listenPeers(const std::string& host, u16 port) { return listenAt(peerListener_, Replication::listenSlot, host, port); }
  // Follows the leader at a numeric address; events report the outcome.
  void follow(const std::string& host, u16 port, u64 epoch, std::string_view hello);
  // Takes the lead: settles the store, and answers changes once `holdMs` have passed. `view` identifies this lead to clients.
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
  // Returns whether keys may be answered: a leader that heard from no peer for too long must not answer.
  bool leased() {
    const std::lock_guard lock(mutex_);
    return serving() && replication_.leased(nowMs());
  }
  void stop();
  // With `refusal`, the answer reveals no state and waits for no record.
  void answer(u64 connection, u32 seq, u8 error, std::string_view body, bool refusal);
  // Sets the rights of the key that a connection showed; with Rights::none it is closed after the answer. Returns its peer.
  std::string authorize(u64 connection, Rights rights, std::string tenant);
  // Returns a connection's rights and its key's tenant; none once it is closed.
  std::pair<Rights, std::string> callerOf(u64 connection);

  bool serving() const { return serving_.load(std::memory_order_acquire); }
  // Runs `use` on the store, between two iterations of the server thread. Must not be called during recovery.
  template <typename Use>
  auto with(Use use) {
    const std::lock_guard lock(mutex_);
    store.at(nowMs());
    return use();
  }
  // Like `with`, for changes: the server thread then writes their records, and releases the answers that wait for them.
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
  // Emits an event once all records so far are as durable as the settings require.
  void reportDurable();
  // Visits each durable batch of KV events from a number on, until `take` returns false.
  template <typename Take>
  void eachBatch(u64 from, Take take) {
    for (const KvEvents::Batch& batch : store.events.queue()) {
      if (batch.lsn > committed()) return;
      if (batch.sequence >= from && !take(batch)) return;
    }
  }
  // Publishes an empty batch after a dump that no other batch followed. Unlike the dump's batches it is kept, so that the dump's reader can
  // continue from its number.
  void endDump(u64 end);
  // Emits an event again when there are more batches to publish.
  void announceBatchesAgain() { announcedBatches_ = false; }
  // Returns whether the log has space for that many bytes of records in addition to those of any call.
  bool canLog(u64 more = 0) { return log_.hasSpace((u64{1} << 20) + more, store.nowMs()); }
  bool logFull() const { return logFull_.load(std::memory_order_relaxed); }

  Store store;
  Operations operations;
  // Must be set before start().
  Access access;
  std::atomic<u64> connections{0}, httpConnections{0}, accepted{0}, refused{0}, malformed{0}, bufferedBytes{0};
  const Snapshot& snapshot() const { return snapshot_; }
  const Log& log() const { return log_; }
  // Returns the last record that is durable on every master that answers wait for.
  u64 committed() const { return replication_.committed(log_.durableLsn(), nowMs()); }
  void configureReplication(const ReplicationTimes& times, bool sync);

 private:
  struct Connection {
    int fd = -1;
    u32 generation = 0;
    bool waiting = false;   // for JavaScript's answer
    bool http = false, leaving = false;  // handed to JavaScript once all output is sent
    bool ready = false;     // has whole frames that were not processed
    bool touched = false;   // got an answer in this loop iteration
    bool closing = false, watchesOut = false, paused = false;
    Rights rights = Rights::none;
    u64 heardMs = 0, begunMs = 0;
    std::string in, out, tenant;
    std::size_t inAt = 0, counted = 0;
    std::size_t filled = 0;  // bytes of `in` written since its allocation: untouched pages take no memory
    u64 appended = 0, sent = 0, sendable = 0;  // bytes since the connection began
  };
  struct Waiting {
    u64 lsn;
    u32 slot, generation;
    u64 until;
  };

  // A put that found no space. Later calls of its connection overtake it, since it may be waiting for one of them.
  struct Starved {
    u32 slot, generation;
    u64 untilMs;
    Request request;
    std::string body;
  };
  static constexpr std::size_t mostStarved = 1'024, mostStarvedBytes = 64 << 10;
  // After a wait without effect, the next puts are refused at once for this long.
  static constexpr u64 refusesForMs = 200;

  // Closes its descriptor after the members declared later are gone, since they may still use it.
  struct Descriptor {
    int fd = -1;
    ~Descriptor();
  };

  // The most bytes that an idle connection keeps in each of its buffers.
  static constexpr std::size_t keptBytes = 4 << 10;
  static constexpr u32 wakeSlot = ~u32{0}, listenSlot = wakeSlot - 1, httpSlot = wakeSlot - 2;

  u64 nowMs() const;
  // The system clock, as events report it.
  static u64 unixMs();
  void run();
  void recover(bool leads);
  std::string noteOf(const Recovery& found, u64 tookMs);
  u16 listenAt(Descriptor& listener, u32 slot, const std::string& host, u16 port);
  void accept(int listener, bool http);
  std::size_t httpRequests(u32 slot, const char* at, std::size_t size);
  void handOff(u32 slot);
  void readFrom(u32 slot);
  // Processes whole frames; returns how many bytes they had.
  std::size_t frames(u32 slot, const char* at, std::size_t size);
  void takeBacklog(u32 slot);
  void handOver(u32 slot, const Request& request, const char* body, EventKind kind);
  void refuseFrame(u32 slot, const Request& request);
  void refuseCall(u32 slot, const Request& request, u8 error, const std::string& body);
  void reportDenied(u32 slot, u32 function);
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
  void growBuffer(Connection& connection);
  void trim(Connection& connection);
  void wake();
  void tendStore();
  // Runs a call, then answers it or hands it over. One that finds no space is retried until `starvedUntilMs`, which is 0 for a new call.
  void serve(u32 slot, const Request& request, const char* body, u64 starvedUntilMs);
  // Retries starved puts once space was freed or their time is over.
  void serveStarved();
  void writeLog();
  void announceBatches();
  u64 idOf(u32 slot) const { return (u64{conns_[slot].generation} << 20) | slot; }

  Limits limits_;
  FairMutex mutex_;
  Descriptor epoll_, wake_, listener_, httpListener_;
  bool answersHttp_ = false;
  Log log_;
  Snapshot snapshot_;
  std::deque<Starved> starved_;  // in the order of their deadlines
  u64 freedSeen_ = 0, starvesAgainMs_ = 0;
  Replication replication_;
  Descriptor peerListener_;
  std::function<void(Event)> emit_;
  std::vector<Connection> conns_;
  std::vector<u32> free_, ready_, touched_;
  std::deque<Waiting> waits_;
  std::deque<u64> durableWaits_;
  std::vector<char> scratch_;
  std::atomic<bool> serving_{false}, standing_{false}, ending_{false}, logFull_{false};
  // `fresh_`: a standby that neither read a log nor followed a leader, so it may take in a leader's state.
  bool fresh_ = false, needed_ = true;
  std::atomic<bool> woken_{false};
  bool more_ = false, wasStuck_ = false, announcedBatches_ = false;
  u64 denied_ = 0, deniedAtMs_ = 0;  // calls without a key since the last such event, and when the next one is due
  u64 sweepAtMs_ = 0, begunMs_ = 0, snapshotAtMs_ = 0;
  std::thread thread_, recovering_;
};

}  // namespace svc
