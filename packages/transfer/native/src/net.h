// Sockets with bounds: addresses, listeners, connects that give up.
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

/** `host:port`, IPv6 hosts in brackets. */
std::string joinHostPort(const std::string& host, uint64_t port);
/** Splits at the last colon; the port is 0 when there is none. Nothing when the port is no number up to 65535. */
std::optional<std::pair<std::string, uint16_t>> splitHostPort(const std::string& text);

/** Nothing, with lastError() set, when the name has no address. Numeric addresses ask no resolver. */
std::optional<Address> resolveHost(const std::string& host, uint16_t port);
/** Address of the first interface that is up and no loopback; 127.0.0.1 when there is none. */
std::string firstInterfaceAddress();

/** A listening, non-blocking socket; `where` gets the port. `error` gets errno. */
Fd listenOn(Address& where, int backlog, int& error);
/** All interfaces, both families. */
Fd listenOnAll(uint16_t& port, int backlog, int& error);
/** On the host's address at this port (0: any), which gets the port; on all interfaces where the address is none of this host's. */
Fd listenAt(const std::string& host, uint16_t& port, int& error);
/** At a free port from `first` to `last`. Null with `why`. */
Fd listenInRange(const std::string& host, uint64_t first, uint64_t last, uint16_t& port, std::string& why);
/** Non-blocking connect under way or done; -1 with errno otherwise. */
Fd beginConnect(const Address& address);
/** A connected, blocking socket, or none with lastError() set. */
/** Within what a metadata server must accept a connection, and answer one request. */
constexpr uint64_t METADATA_CONNECT_MS = 1500, METADATA_TOTAL_MS = 3000;
Fd connectWithin(const Address& address, uint64_t timeoutMs);
/** For a connected data connection: where both ends are this host's, what it holds unsent is kept small enough to stay in the processors' caches. */
void fitSendBuffer(int fd);
/** While it lives, waitFor() and what stands on it wait in this thread until its deadline at most; 0 bounds nothing. */
class WaitsUntil {
 public:
  explicit WaitsUntil(uint64_t deadlineNs);
  ~WaitsUntil();
  WaitsUntil(const WaitsUntil&) = delete;
  WaitsUntil& operator=(const WaitsUntil&) = delete;

 private:
  uint64_t before_;
};
/** poll() for one descriptor: false when the deadline passed. A deadline of 0 is none. */
bool waitFor(int fd, short events, uint64_t deadlineNs);
bool sendAll(int fd, const void* data, size_t size, uint64_t deadlineNs);
/** Bytes read, 0 at the end, -1 on an error or when the deadline passed (errno ETIMEDOUT). */
ssize_t receiveSome(int fd, void* data, size_t size, uint64_t deadlineNs);
bool receiveAll(int fd, void* data, size_t size, uint64_t deadlineNs);

}  // namespace svc
