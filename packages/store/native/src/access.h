// Who may call: everybody while access is off; else connections that showed a key, and those from trusted addresses.
#pragma once
#include <array>
#include <unordered_set>
#include <vector>

#include "base.h"

struct sockaddr_storage;

namespace svc {

enum class Rights : u8 { none = 0, tenant = 1, all = 2 };

class Access {
 public:
  // In the heads of refusals; src/rpc/frame.ts has the same.
  static constexpr u8 noKeyError = 30, otherTenantError = 31;
  // Bodies of refusals, ready for the wire: before a key was shown, and for what a tenant's key may not do.
  std::string noKey, otherTenant;

  // From now on calls need a key. `functions` are those that show one, `trusted` are written ADDRESS/BITS; throws std::invalid_argument.
  void guard(const std::vector<u32>& functions, const std::vector<std::string>& trusted);
  bool on() const { return on_; }
  bool shows(u32 function) const { return functions_.contains(function); }
  Rights firstRights(const sockaddr_storage& peer) const;

 private:
  // IPv4 addresses are kept in their IPv6 form, as a listener for both sees them.
  struct Range {
    std::array<u8, 16> prefix;
    u32 bits;
  };
  bool on_ = false;
  std::unordered_set<u32> functions_;
  std::vector<Range> trusted_;
};

// Of the other end of a socket, ADDRESS:PORT; empty when it is gone.
std::string peerOf(int fd);

}  // namespace svc
