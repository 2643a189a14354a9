// One of several masters: standing by, following, and taking the lead between two iterations of the server thread.
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <random>
#include <stdexcept>

#include "server/server.h"

namespace svc {

namespace {
u32 newTerm() {
  std::random_device device;
  return static_cast<u32>(device() | 1u);
}
}  // namespace

void Server::configureReplication(const ReplicationTimes& times, bool sync) {
  replication_.configure(times, sync, limits_.snapshotBytes, epoll_.fd, [this](Replication::Notice what, u64 id, std::string text) {
    static constexpr EventKind kinds[] = {EventKind::peer, EventKind::caughtUp, EventKind::peerLost, EventKind::followed, EventKind::followLost, EventKind::handover};
    emit_({kinds[static_cast<u32>(what)], id, 0, 0, std::move(text)});
  });
}

void Server::startStandby(bool recovers, bool needed) {
  replication_.listener(peerListener_.fd);
  fresh_ = !recovers;
  needed_ = needed;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "store-rpc");
  if (recovers) {
    recovering_ = std::thread([this] { recover(false); });
    return;
  }
  standing_.store(true, std::memory_order_release);
  emit_({EventKind::standing, 0, 0, 0, "{\"ms\":0,\"records\":0,\"objects\":0,\"forgotten\":0,\"tornBytes\":0,\"damaged\":[]}"});
}

void Server::follow(const std::string& host, u16 port, u64 epoch, std::string_view hello) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (const int wrong = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); wrong != 0) throw std::runtime_error(gai_strerror(wrong));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  const int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const int yes = 1;
  if (fd < 0) throw std::runtime_error(std::strerror(errno));
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (connect(fd, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
    const std::string why = std::strerror(errno);
    close(fd);
    throw std::runtime_error(why);
  }
  withReplication([&](Replication& replication, u64 nowMs) { replication.follow(fd, epoch, hello, fresh_, nowMs); });
}

void Server::lead(u64 epoch, u64 holdMs, i64 view) {
  if (recovering_.joinable()) recovering_.join();
  // This runs on a thread of its own: with many objects it takes a while, and JavaScript answers other calls meanwhile.
  recovering_ = std::thread([this, epoch, holdMs, view] {
    const u64 begun = nowMs();
    const std::lock_guard lock(mutex_);
    store.at(nowMs());
    const bool followed = replication_.followed();
    Recovery found;
    const u32 term = newTerm();
    // Without any earlier state, a new log is begun.
    if (fresh_ && !followed && !log_.startAt(1, term)) {
      emit_({EventKind::trouble, 1, 0, 0, "the log cannot be written"});
      return;
    }
    const u64 next = store.journal.nextLsn;
    log_.flush();
    log_.beginTerm(term);
    store.replay.end(followed);
    store.journal.clear();
    store.journal.nextLsn = next;
    found.objects = store.table.size();
    operations.view = view;
    replication_.lead(epoch, nowMs(), holdMs);
    if (!store.events.on()) store.events.record(store.journal);
    else store.events.greet(unixMs());
    store.restores.nameLineage();
    store.folder.open();
    standing_.store(false);
    serving_.store(true, std::memory_order_release);
    emit_({EventKind::recovered, 0, 0, 0, noteOf(found, nowMs() - begun)});
    wake();
  });
}

}  // namespace svc
