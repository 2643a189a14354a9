// Parses address ranges, and formats a socket's peer as text.
#include "server/access.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <stdexcept>

namespace svc {

namespace {

constexpr std::size_t mappedBytes = 12;

std::array<u8, 16> mapped(const void* ipv4) {
  std::array<u8, 16> out{};
  out[10] = out[11] = 0xff;
  std::memcpy(out.data() + mappedBytes, ipv4, 4);
  return out;
}

}  // namespace

void Access::guard(const std::vector<u32>& functions, const std::vector<std::string>& trusted) {
  for (const std::string& text : trusted) {
    const std::size_t slash = text.find('/');
    const std::string address = text.substr(0, slash);
    Range range{};
    in_addr ipv4{};
    const bool isIpv4 = inet_pton(AF_INET, address.c_str(), &ipv4) == 1;
    if (isIpv4) range.prefix = mapped(&ipv4);
    const u32 most = isIpv4 ? 32 : 128;
    range.bits = slash == std::string::npos ? most : static_cast<u32>(std::stoul(text.substr(slash + 1)));
    if ((!isIpv4 && inet_pton(AF_INET6, address.c_str(), range.prefix.data()) != 1) || range.bits > most) throw std::invalid_argument("expected ADDRESS/BITS, got " + text);
    if (isIpv4) range.bits += mappedBytes * 8;
    trusted_.push_back(range);
  }
  functions_.insert(functions.begin(), functions.end());
  on_ = true;
}

Rights Access::firstRights(const sockaddr_storage& peer) const {
  if (!on_) return Rights::all;
  std::array<u8, 16> address{};
  if (peer.ss_family == AF_INET) address = mapped(&reinterpret_cast<const sockaddr_in&>(peer).sin_addr);
  else if (peer.ss_family == AF_INET6) std::memcpy(address.data(), &reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr, address.size());
  else return Rights::none;
  for (const Range& range : trusted_) {
    u32 same = 0;
    while (same < range.bits && ((address[same / 8] ^ range.prefix[same / 8]) & (0x80 >> (same % 8))) == 0) ++same;
    if (same == range.bits) return Rights::all;
  }
  return Rights::none;
}

std::string peerOf(int fd) {
  sockaddr_storage peer{};
  socklen_t size = sizeof peer;
  char host[INET6_ADDRSTRLEN] = {}, port[8] = {};
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return {};
  if (getnameinfo(reinterpret_cast<sockaddr*>(&peer), size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0) return {};
  const bool isIpv6 = peer.ss_family == AF_INET6;
  return std::string(isIpv6 ? "[" : "").append(host).append(isIpv6 ? "]:" : ":").append(port);
}

}  // namespace svc
