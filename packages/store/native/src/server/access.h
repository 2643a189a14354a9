// Decides which connections may call: all of them without access control, else those that showed a key or come from a trusted address.
#pragma once
#include <array>
#include <unordered_set>
#include <vector>

#include "base/base.h"

struct sockaddr_storage;

namespace svc {

#define SVC_RIGHTS(each) each(none, "none") each(tenant, "tenant") each(all, "all")
enum class Rights : u8 { SVC_RIGHTS(SVC_VALUE) };
inline constexpr const char* rightNames[] = {SVC_RIGHTS(SVC_NAME)};

class Access {
 public:
  // Error codes in the heads of refusals; src/rpc/frame.ts has the same values.
  static constexpr u8 noKeyError = 30, otherTenantError = 31;
  // Bodies of refusals in wire form: `noKey` before a key was shown, `otherTenant` for a call that a tenant's key does not allow.
  std::string noKey, otherTenant;

  // Requires a key from now on. `functions` are the calls that show one, `trusted` has ADDRESS/BITS. Throws std::invalid_argument.
  void guard(const std::vector<u32>& functions, const std::vector<std::string>& trusted);
  bool on() const { return on_; }
  bool shows(u32 function) const { return functions_.contains(function); }
  Rights firstRights(const sockaddr_storage& peer) const;

 private:
  // IPv4 addresses are kept in their IPv6-mapped form, as a dual-stack listener reports them.
  struct Range {
    std::array<u8, 16> prefix;
    u32 bits;
  };
  bool on_ = false;
  std::unordered_set<u32> functions_;
  std::vector<Range> trusted_;
};

// Returns the peer of a socket as ADDRESS:PORT; empty when it is disconnected.
std::string peerOf(int fd);

}  // namespace svc
