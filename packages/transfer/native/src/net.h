// Sockets with time limits: addresses, listeners, and connects that give up.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <utility>

#include "base.h"

namespace svc {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  uint16_t port() const;
  void setPort(uint16_t port);
  std::string host() const;
};

/** Joins to `host:port`, with IPv6 hosts in brackets. */
std::string joinHostPort(const std::string& host, uint64_t port);
/** Splits at the last colon; the port is 0 if there is none. Returns nothing if the port is not a number up to 65535. */
std::optional<std::pair<std::string, uint16_t>> splitHostPort(const std::string& text);

/** Returns nothing, with lastError(), if the name has no address. Numeric addresses need no resolver. */
std::optional<Address> resolveHost(const std::string& host, uint16_t port);
/** The address of the first interface that is up and not a loopback; 127.0.0.1 if there is none. */
std::string firstInterfaceAddress();

/** Opens a listening, non-blocking socket; `where` receives the port and `error` receives errno. */
Fd listenOn(Address& where, int backlog, int& error);
/** Listens on all interfaces, IPv4 and IPv6. */
Fd listenOnAll(uint16_t& port, int backlog, int& error);
/**
 * Listens on the host's address at this port (0: any), which receives the port; on all interfaces if the address does not belong to this
 * host.
 */
Fd listenAt(const std::string& host, uint16_t& port, int& error);
/** Listens on a free port between `first` and `last`. Returns null with `why` on failure. */
Fd listenInRange(const std::string& host, uint64_t first, uint64_t last, uint16_t& port, std::string& why);
/** Starts a non-blocking connect; returns -1 with errno on failure. */
Fd beginConnect(const Address& address);
/** The time a metadata server has to accept a connection, and to answer one request. */
constexpr uint64_t METADATA_CONNECT_MS = 1500, METADATA_TOTAL_MS = 3000;
/** Returns a connected, blocking socket, or none with lastError(). */
Fd connectWithin(const Address& address, uint64_t timeoutMs);
/** Limits the unsent bytes of a data connection whose ends are both on this host, so that they stay in the processor's caches. */
void fitSendBuffer(int fd);
/** While it lives, waits of this thread (waitFor() and its users) end at its deadline at the latest; 0 means no limit. */
class WaitsUntil {
 public:
  explicit WaitsUntil(uint64_t deadlineNs);
  ~WaitsUntil();
  WaitsUntil(const WaitsUntil&) = delete;
  WaitsUntil& operator=(const WaitsUntil&) = delete;

 private:
  uint64_t before_;
};
/** Polls one descriptor; returns false after the deadline. A deadline of 0 means none. */
bool waitFor(int fd, short events, uint64_t deadlineNs);
bool sendAll(int fd, const void* data, size_t size, uint64_t deadlineNs);
/** Returns the bytes read, 0 at the end, -1 on an error or after the deadline (errno ETIMEDOUT). */
ssize_t receiveSome(int fd, void* data, size_t size, uint64_t deadlineNs);
bool receiveAll(int fd, void* data, size_t size, uint64_t deadlineNs);

}  // namespace svc
