// Connections: accepted within a limit, read fairly, answered in order, and paused or dropped if they send too much.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "server/server.h"

namespace svc {

namespace {
constexpr std::size_t trimBytes = 1 << 20;
// Before a key was shown, a frame needs space for one key only.
constexpr u64 unknownFrameBytes = 64 << 10;
}

void Server::accept(int listener, bool http) {
  while (true) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    const int fd = accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;
    if (http ? httpConnections.load() >= limits_.httpConnections : connections.load() >= limits_.connections) {
      refused.fetch_add(1);
      close(fd);
      continue;
    }
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    u32 slot = 0;
    if (free_.empty()) {
      slot = static_cast<u32>(conns_.size());
      conns_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    const u32 generation = conns_[slot].generation + 1;
    conns_[slot] = Connection{};
    conns_[slot].fd = fd;
    conns_[slot].http = http;
    conns_[slot].generation = generation;
    conns_[slot].rights = http ? Rights::all : access.firstRights(peer);
    conns_[slot].heardMs = conns_[slot].begunMs = nowMs();
    (http ? httpConnections : connections).fetch_add(1);
    accepted.fetch_add(1);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = slot;
    if (epoll_ctl(epoll_.fd, EPOLL_CTL_ADD, fd, &event) != 0) drop(slot);
  }
}

void Server::drop(u32 slot, bool closes) {
  Connection& connection = conns_[slot];
  if (connection.fd < 0) return;
  if (closes) close(connection.fd);
  (connection.http ? httpConnections : connections).fetch_sub(1);
  bufferedBytes.fetch_sub(connection.counted);
  const u32 generation = connection.generation;
  connection = Connection{};
  connection.generation = generation;
  free_.push_back(slot);
}

void Server::watch(u32 slot) {
  Connection& connection = conns_[slot];
  epoll_event event{};
  event.events = (connection.paused ? 0u : static_cast<u32>(EPOLLIN)) | (connection.watchesOut ? static_cast<u32>(EPOLLOUT) : 0u);
  event.data.u32 = slot;
  epoll_ctl(epoll_.fd, EPOLL_CTL_MOD, connection.fd, &event);
}

void Server::readFrom(u32 slot) {
  Connection& connection = conns_[slot];
  const bool blocked = connection.waiting || connection.ready || connection.appended - connection.sent > limits_.unsentBytes;
  if (blocked) {
    char one = 0;
    // Reading is paused, but a disconnected peer must still be noticed.
    const ssize_t peeked = recv(connection.fd, &one, 1, MSG_PEEK);
    if (peeked == 0 || (peeked < 0 && errno != EAGAIN && errno != EINTR)) {
      drop(slot);
      return;
    }
    connection.paused = true;
    watch(slot);
    return;
  }
  const ssize_t got = recv(connection.fd, scratch_.data(), scratch_.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    drop(slot);
    return;
  }
  connection.heardMs = nowMs();
  // Calls are judged by the time at which they were read, since earlier ones of this iteration may have taken long.
  if (serving()) store.at(connection.heardMs);
  const auto size = static_cast<std::size_t>(got);
  if (connection.in.empty()) {
    const std::size_t taken = frames(slot, scratch_.data(), size);
    if (conns_[slot].fd < 0) return;
    if (taken < size) connection.in.assign(scratch_.data() + taken, size - taken);
    growBuffer(connection);
  } else {
    connection.in.append(scratch_.data(), size);
    takeBacklog(slot);
    if (conns_[slot].fd < 0) return;
  }
  account(connection);
  if (connection.leaving) {
    handOff(slot);
    return;
  }
  if (bufferedBytes.load() > limits_.totalBytes && connection.counted > keptBytes) {
    malformed.fetch_add(1);
    drop(slot);
  }
}

void Server::takeBacklog(u32 slot) {
  Connection& connection = conns_[slot];
  connection.ready = false;
  if (connection.fd < 0 || connection.waiting) return;
  if (connection.appended - connection.sent > limits_.unsentBytes) return;
  if (!connection.in.empty()) {
    const std::size_t taken = frames(slot, connection.in.data() + connection.inAt, connection.in.size() - connection.inAt);
    if (conns_[slot].fd < 0) return;
    connection.inAt += taken;
    if (connection.inAt == connection.in.size()) {
      connection.in.clear();
      connection.inAt = 0;
      shrink(connection);
    } else if (connection.inAt > connection.in.size() / 2) {
      connection.in.erase(0, connection.inAt);
      connection.inAt = 0;
      trim(connection);
    }
    growBuffer(connection);
    account(connection);
  }
  if (connection.leaving) {
    handOff(slot);
    return;
  }
  if (connection.paused && !connection.waiting && !connection.ready) {
    connection.paused = false;
    watch(slot);
  }
}

std::size_t Server::frames(u32 slot, const char* bytes, std::size_t size) {
  if (conns_[slot].http) return httpRequests(slot, bytes, size);
  // The connection is closed once its refusal was sent.
  if (conns_[slot].closing) return size;
  std::size_t at = 0;
  for (u32 count = 0; size - at >= requestBytes; ++count) {
    Connection& connection = conns_[slot];
    const char* head = bytes + at;
    if (static_cast<u8>(head[0]) != wireMagic || head[1] != 0 || head[2] != 0) {
      malformed.fetch_add(1);
      drop(slot);
      return 0;
    }
    const Request request = Request::of(head);
    if (request.bodyBytes > limits_.frameBytes || request.attachmentBytes > limits_.frameBytes - request.bodyBytes) {
      refuseFrame(slot, request);
      return 0;
    }
    const bool isKnown = connection.rights != Rights::none;
    if (!isKnown && u64{request.bodyBytes} + request.attachmentBytes > unknownFrameBytes) {
      reportDenied(slot, request.function);
      drop(slot);
      return 0;
    }
    const std::size_t whole = requestBytes + request.bodyBytes + request.attachmentBytes;
    if (size - at < whole) return at;
    if (connection.waiting) return at;
    if (count >= limits_.framesPerIteration || connection.appended - connection.sent > limits_.unsentBytes) {
      if (!connection.ready) {
        connection.ready = true;
        ready_.push_back(slot);
      }
      return at;
    }
    const char* body = head + requestBytes;
    if (!isKnown && !access.shows(request.function)) {
      reportDenied(slot, request.function);
      refuseCall(slot, request, Access::noKeyError, access.noKey);
      at += whole;
      continue;
    }
    serve(slot, request, body, 0);
    at += whole;
  }
  return at;
}

void Server::handOver(u32 slot, const Request& request, const char* body, EventKind kind) {
  // The connection's next frame waits, so that answers keep the order of the requests.
  conns_[slot].waiting = true;
  emit_({kind, idOf(slot), request.seq, request.function, std::string(body, request.bodyBytes)});
}

void Server::refuseFrame(u32 slot, const Request& request) {
  malformed.fetch_add(1);
  emit_({EventKind::malformed, idOf(slot), request.seq, request.function, std::to_string(u64{request.bodyBytes} + request.attachmentBytes)});
  drop(slot);
}

void Server::touch(u32 slot) {
  if (conns_[slot].touched) return;
  conns_[slot].touched = true;
  touched_.push_back(slot);
}

void Server::send(u32 slot) {
  Connection& connection = conns_[slot];
  if (connection.fd < 0) return;
  while (connection.sent < connection.sendable) {
    const std::size_t from = connection.out.size() - static_cast<std::size_t>(connection.appended - connection.sent);
    const ssize_t wrote = ::send(connection.fd, connection.out.data() + from, static_cast<std::size_t>(connection.sendable - connection.sent), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) break;
    if (wrote <= 0) {
      drop(slot);
      return;
    }
    connection.sent += static_cast<u64>(wrote);
  }
  if (connection.sent == connection.appended) {
    connection.out.clear();
    shrink(connection);
  } else if (const auto gone = connection.out.size() - static_cast<std::size_t>(connection.appended - connection.sent); gone > trimBytes) {
    connection.out.erase(0, gone);
  }
  account(connection);
  if (connection.closing && connection.sent == connection.appended) {
    drop(slot);
    return;
  }
  if (connection.leaving && connection.sent == connection.appended) {
    handOff(slot);
    return;
  }
  const bool blocked = connection.sent < connection.sendable;
  if (blocked != connection.watchesOut) {
    connection.watchesOut = blocked;
    watch(slot);
  }
  // Frames that were postponed because too much was unsent can continue.
  if (!blocked && (connection.paused || !connection.in.empty()) && !connection.waiting && !connection.ready) {
    connection.ready = true;
    ready_.push_back(slot);
  }
}

void Server::sweep() {
  const u64 now = nowMs();
  sweepAtMs_ = now + 1'000;
  for (u32 slot = 0; slot < conns_.size(); ++slot) {
    const Connection& connection = conns_[slot];
    constexpr u64 idleHttpMs = 60'000;
    if (connection.fd >= 0 && connection.http && now > connection.heardMs + idleHttpMs) drop(slot);
    if (connection.fd >= 0 && connection.rights == Rights::none && now > connection.begunMs + limits_.halfFrameMs) drop(slot);
    if (connection.fd < 0 || connection.waiting) continue;
    const bool half = !connection.in.empty() && !connection.ready;
    const bool deaf = connection.sent < connection.sendable;
    if ((half || deaf) && now > connection.heardMs + limits_.halfFrameMs) drop(slot);
  }
}

}  // namespace svc
