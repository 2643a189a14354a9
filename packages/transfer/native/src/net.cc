// Sockets with time limits: addresses, listeners, and connects that give up.
#include "net.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <charconv>
#include <random>

#include "svc/transfer_engine.h"

namespace svc {

namespace {
constexpr int PORT_TRIES = 500;
constexpr int BACKLOG = 128;
/**
 * The kernel doubles this value. With larger buffers the loopback receiver finds pages evicted from its cache: 4 MiB take 1.3 ms and more
 * instead of 0.9.
 */
constexpr int SAME_HOST_SEND_BYTES = 128 << 10;
}  // namespace

uint16_t Address::port() const {
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

void Address::setPort(uint16_t port) {
  if (storage.ss_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
  else reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
}

std::string Address::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET6) inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, text, sizeof text);
  else inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, text, sizeof text);
  return text;
}

std::string joinHostPort(const std::string& host, uint64_t port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

std::optional<std::pair<std::string, uint16_t>> splitHostPort(const std::string& text) {
  std::string host = text, port;
  if (!text.empty() && text[0] == '[') {
    size_t close = text.find(']');
    if (close == std::string::npos) return std::nullopt;
    host = text.substr(1, close - 1);
    if (close + 1 < text.size()) {
      if (text[close + 1] != ':') return std::nullopt;
      port = text.substr(close + 2);
    }
  } else if (size_t colon = text.rfind(':'); colon != std::string::npos) {
    // Two colons without brackets are a bare IPv6 address.
    if (text.find(':') == colon) {
      host = text.substr(0, colon);
      port = text.substr(colon + 1);
    }
  }
  uint32_t number = 0;
  if (!port.empty()) {
    auto [rest, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || rest != port.data() + port.size() || number > 65535) return std::nullopt;
  }
  return std::pair(host, uint16_t(number));
}

std::optional<Address> resolveHost(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  int code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (code != 0) {
    // IPv4 comes first, because Mooncake's engines listen there by default.
    hints.ai_flags = 0;
    hints.ai_family = AF_INET;
    code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (code != 0) {
      hints.ai_family = AF_INET6;
      code = getaddrinfo(host.c_str(), nullptr, &hints, &found);
    }
  }
  if (code != 0 || found == nullptr) {
    setLastError("the host name " + host + " has no address: " + gai_strerror(code));
    return std::nullopt;
  }
  Address address;
  memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  address.setPort(port);
  return address;
}

std::string firstInterfaceAddress() {
  ifaddrs* all = nullptr;
  std::string found;
  if (getifaddrs(&all) != 0) return "127.0.0.1";
  for (ifaddrs* each = all; each != nullptr && found.empty(); each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    if ((each->ifa_flags & IFF_LOOPBACK) != 0 || (each->ifa_flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING)) continue;
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(each->ifa_addr)->sin_addr, text, sizeof text);
    found = text;
  }
  freeifaddrs(all);
  return found.empty() ? "127.0.0.1" : found;
}

namespace {
Fd listenAt(Address& where, int backlog, int& error) {
  Fd fd(socket(where.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (where.storage.ss_family == AF_INET6) setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  if (!fd || bind(fd.get(), reinterpret_cast<sockaddr*>(&where.storage), where.length) != 0 || listen(fd.get(), backlog) != 0) {
    error = errno;
    return {};
  }
  where.length = sizeof where.storage;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&where.storage), &where.length);
  return fd;
}
}  // namespace

Fd listenOn(Address& where, int backlog, int& error) { return listenAt(where, backlog, error); }

Fd listenOnAll(uint16_t& port, int backlog, int& error) {
  for (const char* host : {"::", "0.0.0.0"}) {
    Address where = *resolveHost(host, port);
    Fd fd = listenAt(where, backlog, error);
    if (fd) {
      port = where.port();
      return fd;
    }
    if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL) break;
  }
  return {};
}

Fd listenAt(const std::string& host, uint16_t& port, int& error) {
  auto address = resolveHost(host, port);
  if (!address) return {};
  Fd fd = listenOn(*address, BACKLOG, error);
  if (fd) port = address->port();
  // Behind address translation the published address does not belong to this host.
  return fd || error != EADDRNOTAVAIL ? std::move(fd) : listenOnAll(port, BACKLOG, error);
}

Fd listenInRange(const std::string& host, uint64_t first, uint64_t last, uint16_t& port, std::string& why) {
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<uint32_t> pick(static_cast<uint32_t>(first), static_cast<uint32_t>(last));
  for (int i = 0; i < PORT_TRIES; i++) {
    int error = 0;
    port = uint16_t(pick(random));
    Fd fd = listenAt(host, port, error);
    if (fd) return fd;
    if (error == EADDRINUSE) continue;
    why = "listening on " + host + ": " + (error == 0 ? lastError() : errnoText(error));
    return {};
  }
  why = "no free port from " + std::to_string(first) + " to " + std::to_string(last) + " on " + host;
  return {};
}

Fd beginConnect(const Address& address) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd) return {};
  int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0 && errno != EINPROGRESS) {
    int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

Fd connectWithin(const Address& address, uint64_t timeoutMs) {
  std::string who = joinHostPort(address.host(), address.port());
  Fd fd = beginConnect(address);
  if (!fd) {
    setLastError("connecting to " + who + ": " + errnoText());
    return {};
  }
  if (!waitFor(fd.get(), POLLOUT, nowNs() + timeoutMs * NS_PER_MS)) {
    setLastError("connecting to " + who + ": no answer within " + std::to_string(timeoutMs) + " ms");
    return {};
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    setLastError("connecting to " + who + ": " + errnoText(error));
    return {};
  }
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK);
  return fd;
}

namespace {
thread_local uint64_t waitsUntilNs = 0;
}  // namespace

WaitsUntil::WaitsUntil(uint64_t deadlineNs) : before_(waitsUntilNs) {
  if (deadlineNs != 0 && (before_ == 0 || deadlineNs < before_)) waitsUntilNs = deadlineNs;
}
WaitsUntil::~WaitsUntil() { waitsUntilNs = before_; }

void fitSendBuffer(int fd) {
  sockaddr_storage here{}, there{};
  socklen_t hereSize = sizeof here, thereSize = sizeof there;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here), &hereSize) != 0 || getpeername(fd, reinterpret_cast<sockaddr*>(&there), &thereSize) != 0) return;
  if (here.ss_family != there.ss_family) return;
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(&here);
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&here);
  const bool sameHost = here.ss_family == AF_INET
                            ? v4->sin_addr.s_addr == reinterpret_cast<const sockaddr_in*>(&there)->sin_addr.s_addr
                            : here.ss_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&v6->sin6_addr, &reinterpret_cast<const sockaddr_in6*>(&there)->sin6_addr);
  if (!sameHost) return;
  const int bytes = SAME_HOST_SEND_BYTES;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

bool waitFor(int fd, short events, uint64_t deadlineNs) {
  if (waitsUntilNs != 0 && (deadlineNs == 0 || waitsUntilNs < deadlineNs)) deadlineNs = waitsUntilNs;
  while (true) {
    int waitMs = -1;
    if (deadlineNs != 0) {
      uint64_t now = nowNs();
      if (now >= deadlineNs) {
        errno = ETIMEDOUT;
        return false;
      }
      waitMs = int((deadlineNs - now) / NS_PER_MS) + 1;
    }
    pollfd entry{fd, events, 0};
    int ready = poll(&entry, 1, waitMs);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

bool sendAll(int fd, const void* data, size_t size, uint64_t deadlineNs) {
  auto* at = static_cast<const char*>(data);
  while (size > 0) {
    ssize_t n = send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      at += n;
      size -= size_t(n);
    } else if (n < 0 && errno == EAGAIN) {
      if (!waitFor(fd, POLLOUT, deadlineNs)) return false;
    } else if (n == 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

ssize_t receiveSome(int fd, void* data, size_t size, uint64_t deadlineNs) {
  while (true) {
    ssize_t n = recv(fd, data, size, MSG_DONTWAIT);
    if (n >= 0) return n;
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !waitFor(fd, POLLIN, deadlineNs)) return -1;
  }
}

bool receiveAll(int fd, void* data, size_t size, uint64_t deadlineNs) {
  auto* at = static_cast<char*>(data);
  while (size > 0) {
    ssize_t n = receiveSome(fd, at, size, deadlineNs);
    if (n <= 0) {
      if (n == 0) errno = ECONNRESET;
      return false;
    }
    at += n;
    size -= size_t(n);
  }
  return true;
}

}  // namespace svc
