// The thread that answers: connections, frames, the store's slices, and the log before every answer.
#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <thread>

#include "fair_mutex.h"
#include "operations.h"
#include "snapshot.h"

namespace svc {

struct Limits {
  u32 frameBytes = 64 << 20, connections = 20'000, framesPerTurn = 64;
  // What waits to be sent on one connection before nothing more is read from it, and all buffers together.
  u64 unsentBytes = 8 << 20, totalBytes = u64{1} << 30;
  u64 halfFrameMs = 30'000;
  u64 snapshotBytes = 256 << 20;
};

enum class EventKind : u8 { request = 0, unknown = 1, malformed = 2, probe = 3, client = 4, recovered = 5, durable = 6, trouble = 7, log = 8 };

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
  u16 listen(const std::string& host, u16 port);
  // Begins to answer, and to recover.
  void start();
  void stop();
  void answer(u64 connection, u32 seq, u8 error, std::string_view body);

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
  bool room() { return log_.room(u64{1} << 20, store.nowMs()); }
  bool logFull() const { return logFull_.load(std::memory_order_relaxed); }

  Store store;
  Operations operations;
  std::atomic<u64> connections{0}, accepted{0}, refused{0}, malformed{0}, bufferedBytes{0};
  const Snapshot& snapshot() const { return snapshot_; }
  const Log& log() const { return log_; }

 private:
  struct Connection {
    int fd = -1;
    u32 generation = 0;
    bool waiting = false;   // for the script's answer
    bool ready = false;     // has whole frames that were not looked at
    bool touched = false;   // got an answer in this turn
    bool closing = false, watchesOut = false, paused = false;
    u64 heardMs = 0;
    std::string in, out;
    std::size_t inAt = 0, counted = 0;
    u64 appended = 0, sent = 0, sendable = 0;  // bytes since the connection began
  };
  struct Waiting {
    u64 lsn;
    u32 slot, generation;
    u64 until;
  };

  // Closed after everything that may still use it.
  struct Descriptor {
    int fd = -1;
    ~Descriptor();
  };

  u64 nowMs() const;
  void run();
  void accept();
  void readFrom(u32 slot);
  // Takes whole frames off the bytes; how many bytes that were.
  std::size_t frames(u32 slot, const char* at, std::size_t size);
  void takeBacklog(u32 slot);
  void handOver(u32 slot, const Request& request, const char* body, EventKind kind);
  void refuseFrame(u32 slot, const Request& request);
  void touch(u32 slot);
  void release();
  void send(u32 slot);
  void watch(u32 slot);
  void shrink(Connection& connection);
  void drop(u32 slot);
  void sweep();
  void account(Connection& connection);
  void wake();
  void tendStore();
  u64 idOf(u32 slot) const { return (u64{conns_[slot].generation} << 20) | slot; }

  Limits limits_;
  FairMutex mutex_;
  Descriptor epoll_, wake_, listener_;
  Log log_;
  Snapshot snapshot_;
  std::function<void(Event)> tell_;
  std::vector<Connection> conns_;
  std::vector<u32> free_, ready_, touched_;
  std::deque<Waiting> waits_;
  std::deque<u64> durableWaits_;
  std::vector<char> scratch_;
  std::atomic<bool> serving_{false}, ending_{false}, logFull_{false};
  std::atomic<bool> woken_{false};
  bool more_ = false, wasStuck_ = false;
  u64 sweepAtMs_ = 0, begunMs_ = 0, snapshotAtMs_ = 0;
  std::thread thread_, recovering_;
};

}  // namespace svc
