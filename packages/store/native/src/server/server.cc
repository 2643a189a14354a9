// The server thread's loop: input, the store's background work, the log, and then the answers.
#include "server/server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <random>
#include <stdexcept>

#include "base/thread_priority.h"

namespace svc {

namespace {
constexpr int eventsPerIteration = 512, idleMs = 100, beatingMs = 20, busyMs = 10;
constexpr u32 tendRecords = 2'048;
constexpr u64 sweepEveryMs = 1'000;
constexpr std::size_t scratchBytes = 256 << 10;

u64 steadyMs() { return static_cast<u64>(std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count()); }
u64 randomSeed() {
  std::random_device device;
  return (u64{device()} << 32) | device();
}
}  // namespace

// The store's clock starts at one second, so that no time is ever 0.
u64 Server::unixMs() { return static_cast<u64>(std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count()); }
u64 Server::nowMs() const { return steadyMs() - begunMs_ + 1000; }

Server::Server(const Settings& settings, const Limits& limits, Log::Options log, std::function<void(Event)> emit)
    : store(settings, randomSeed()), operations(store), limits_(limits), log_(std::move(log), [this] { wake(); }), snapshot_(log_, store), replication_(store, log_, snapshot_), emit_(std::move(emit)) {
  begunMs_ = steadyMs();
  store.at(nowMs());
  store.journal.epochMs = unixMs() - nowMs();
  store.onSuspect = [this](u32 segment) { emit_({EventKind::probe, segment, 0, 0, store.cluster.segment(segment)->endpoint}); };
  store.onClient = [this](u32 client, const char* what) { emit_({EventKind::client, client, 0, 0, what}); };
  scratch_.resize(scratchBytes);
  epoll_.fd = epoll_create1(EPOLL_CLOEXEC);
  wake_.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = wakeSlot;
  if (epoll_.fd < 0 || wake_.fd < 0 || epoll_ctl(epoll_.fd, EPOLL_CTL_ADD, wake_.fd, &event) != 0) throw std::runtime_error(std::string("epoll: ") + std::strerror(errno));
}

Server::~Server() { stop(); }

Server::Descriptor::~Descriptor() {
  if (fd >= 0) close(fd);
}

u16 Server::listenAt(Descriptor& listener, u32 slot, const std::string& host, u16 port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (const int wrong = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); wrong != 0) throw std::runtime_error(gai_strerror(wrong));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  listener.fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (listener.fd < 0 || bind(listener.fd, found->ai_addr, found->ai_addrlen) != 0 || ::listen(listener.fd, 1024) != 0) throw std::runtime_error(std::strerror(errno));
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(listener.fd, reinterpret_cast<sockaddr*>(&bound), &size);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u32 = slot;
  epoll_ctl(epoll_.fd, EPOLL_CTL_ADD, listener.fd, &event);
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

void Server::start() {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "store-rpc");
  recovering_ = std::thread([this] { recover(true); });
}

// Reads the log into the store, for a leader or for a standby.
void Server::recover(bool leads) {
  const u64 begun = steadyMs();
  std::string note;
  bool intact = false;
  try {
    const Recovery found = log_.recover(store, leads);
    note = noteOf(found, steadyMs() - begun);
    for (const std::string& name : found.damaged) snapshot_.damaged.push_back(name.substr(0, name.find(' ')));
    intact = found.damaged.empty();
  } catch (const std::exception& error) {
    if (leads || needed_) return emit_({EventKind::trouble, 1, 0, 0, error.what()});
    // A standby whose state is not needed takes in its leader's.
    note = noteOf(Recovery(), steadyMs() - begun);
  }
  const std::lock_guard lock(mutex_);
  replication_.recovered(intact);
  if (!leads) {
    standing_.store(true, std::memory_order_release);
    emit_({EventKind::standing, 0, 0, 0, note});
    wake();
    return;
  }
  // Without a publisher, earlier subscribers miss events: the numbers that show the gap are logged.
  if (!store.events.on()) store.events.record(store.journal);
  store.restores.nameLineage();
  store.folder.open();
  serving_.store(true, std::memory_order_release);
  emit_({EventKind::recovered, 0, 0, 0, note});
  wake();
}

std::string Server::noteOf(const Recovery& found, u64 tookMs) {
  std::string note = "{\"ms\":" + std::to_string(tookMs) + ",\"records\":" + std::to_string(found.records) + ",\"objects\":" + std::to_string(found.objects) +
                     ",\"forgotten\":" + std::to_string(found.forgotten) + ",\"tornBytes\":" + std::to_string(found.tornBytes) + ",\"damaged\":[";
  for (std::size_t i = 0; i < found.damaged.size(); ++i) note += (i > 0 ? ",\"" : "\"") + found.damaged[i] + "\"";
  return note + "]}";
}

void Server::stop() {
  if (recovering_.joinable()) recovering_.join();
  if (!thread_.joinable()) return;
  ending_.store(true);
  wake();
  thread_.join();
  for (u32 slot = 0; slot < conns_.size(); ++slot)
    if (conns_[slot].fd >= 0) drop(slot);
}

void Server::wake() {
  if (woken_.exchange(true)) return;
  const u64 one = 1;
  if (::write(wake_.fd, &one, sizeof one) < 0) return;  // a full counter wakes it as well
}

void Server::run() {
  runSoon();
  std::vector<epoll_event> events(eventsPerIteration);
  while (!ending_.load()) {
    const bool busy = more_ || !ready_.empty();
    const int timeout = busy ? 0 : !starved_.empty() ? busyMs : serving() && (log_.stuck() || store.eviction.wantsSoon()) ? busyMs : replication_.on() ? beatingMs : idleMs;
    const int count = epoll_wait(epoll_.fd, events.data(), eventsPerIteration, timeout);
    const std::lock_guard lock(mutex_);
    more_ = false;
    if (serving()) store.at(nowMs());
    // Frames that were postponed for fairness come before new ones of the same connection.
    std::vector<u32> ready;
    ready.swap(ready_);
    for (const u32 slot : ready) takeBacklog(slot);
    for (int i = 0; i < count; ++i) {
      const u32 slot = events[i].data.u32;
      if (slot == wakeSlot) {
        u64 drained = 0;
        if (::read(wake_.fd, &drained, sizeof drained) >= 0) woken_.store(false);
      } else if (slot == listenSlot) {
        accept(listener_.fd, false);
      } else if (slot == httpSlot) {
        accept(httpListener_.fd, true);
      } else if (Replication::owns(slot)) {
        replication_.onEvent(slot, events[i].events, nowMs());
      } else {
        if (events[i].events & EPOLLOUT) send(slot);
        if (conns_[slot].fd >= 0 && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) readFrom(slot);
      }
    }
    if (serving() && !replication_.retired()) tendStore();
    serveStarved();
    release();
    if (serving() || standing_.load(std::memory_order_acquire)) more_ = replication_.tick(nowMs()) || more_;
    if (nowMs() >= sweepAtMs_) sweep();
  }
  const std::lock_guard lock(mutex_);
  if (serving()) release();
}

void Server::tendStore() {
  // Background work needs log space too: on a full disk nothing is evicted or given up, and no change is accepted.
  if (log_.hasSpace((u64{1} << 20) + store.journal.pending.size(), store.nowMs())) more_ = store.tend(tendRecords);
  logFull_.store(log_.full(), std::memory_order_relaxed);
  if (snapshot_.running()) {
    more_ = snapshot_.some() || more_;
  } else if ((log_.bytesSinceSnapshot() > limits_.snapshotBytes || !snapshot_.damaged.empty()) && store.nowMs() >= snapshotAtMs_) {
    constexpr u64 againMs = 10'000;
    snapshotAtMs_ = store.nowMs() + againMs;
    writeLog();
    snapshot_.begin();
  }
}

void Server::release() {
  if (serving()) writeLog();
  if (log_.stuck() != wasStuck_) {
    wasStuck_ = log_.stuck();
    emit_({EventKind::trouble, 0, 0, 0, wasStuck_ ? "the log cannot be written: answers wait" : "the log is written again"});
  }
  const u64 needed = serving() ? store.journal.nextLsn - 1 : 0;
  const u64 durable = committed();
  for (; !waits_.empty() && waits_.front().lsn <= durable; waits_.pop_front()) {
    const Waiting& wait = waits_.front();
    Connection& connection = conns_[wait.slot];
    if (connection.generation != wait.generation || connection.fd < 0) continue;
    connection.sendable = wait.until;
    send(wait.slot);
  }
  std::vector<u32> touched;
  touched.swap(touched_);
  for (const u32 slot : touched) {
    Connection& connection = conns_[slot];
    if (!connection.touched) continue;
    connection.touched = false;
    if (needed > durable && connection.sendable < connection.appended) {
      waits_.push_back({needed, slot, connection.generation, connection.appended});
      continue;
    }
    connection.sendable = connection.appended;
    send(slot);
  }
  for (; !durableWaits_.empty() && durableWaits_.front() <= durable; durableWaits_.pop_front())
    emit_({EventKind::durable, durableWaits_.front(), 0, 0, {}});
  if (store.events.on()) announceBatches();
}

// Events are added to the log before it is written, together with their causes.
void Server::writeLog() {
  store.events.endIteration(store.journal);
  log_.write(store.journal);
  if (replication_.leads()) replication_.flush();
}

void Server::endDump(u64 end) {
  if (store.events.next() != end || !canLog()) return;
  store.events.greet(unixMs());
  // The batch is closed now, and not at the end of the iteration, so that a caller that waits for durability from here on waits for it too.
  store.events.endIteration(store.journal);
}

void Server::announceBatches() {
  if (announcedBatches_ || !serving()) return;
  eachBatch(store.events.wanted(), [&](const KvEvents::Batch&) {
    announcedBatches_ = true;
    return false;
  });
  if (announcedBatches_) emit_({EventKind::batches, 0, 0, 0, {}});
}

void Server::reportDurable() { durableWaits_.push_back(store.journal.nextLsn - 1); }

Server::Connection* Server::connectionOf(u64 id) {
  const u32 slot = static_cast<u32>(id & 0xfffff);
  return slot < conns_.size() && conns_[slot].fd >= 0 && idOf(slot) == id ? &conns_[slot] : nullptr;
}

// A refusal reveals no state, so it need not wait for records that cannot be written now.
void Server::appended(u32 slot, std::size_t bytes, bool refusal) {
  Connection& connection = conns_[slot];
  const bool waits = connection.sendable < connection.appended;
  connection.appended += bytes;
  if (refusal && !waits) connection.sendable = connection.appended;
  touch(slot);
}

void Server::answer(u64 id, u32 seq, u8 error, std::string_view body, bool refusal) {
  const std::lock_guard lock(mutex_);
  const u32 slot = static_cast<u32>(id & 0xfffff);
  if (connectionOf(id) == nullptr || !conns_[slot].waiting) return;
  Connection& connection = conns_[slot];
  connection.waiting = false;
  const std::size_t before = connection.out.size();
  WireWriter to(connection.out);
  to.frame(seq, error);
  connection.out.append(body);
  to.end();
  appended(slot, connection.out.size() - before, refusal);
  if (!connection.ready) {
    connection.ready = true;
    ready_.push_back(slot);
  }
  wake();
}

}  // namespace svc
