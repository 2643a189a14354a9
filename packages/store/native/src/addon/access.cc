// The methods for access control: which calls need a key, what a shown key allows, and who is calling.
#include "addon/addon.h"

namespace svc {

// (functions that show a key, trusted addresses, refusal without a key, refusal of another tenant)
napi_value guard(Addon& addon, const Call& call) {
  std::vector<u32> functions;
  u32 length = 0;
  check(napi_get_array_length(call.env, call.at(0), &length), "expected an array");
  for (u32 i = 0; i < length; ++i) {
    napi_value each = nullptr;
    check(napi_get_element(call.env, call.at(0), i, &each), "element");
    functions.push_back(static_cast<u32>(call.number(each)));
  }
  Access& access = addon.server->access;
  access.noKey = call.buffer(2);
  access.otherTenant = call.buffer(3);
  access.guard(functions, call.list(1));
  return call.undefined();
}

// (connection, rights, tenant) → its peer
napi_value authorize(Addon& addon, const Call& call) {
  if (!addon.server) return call.of(std::string_view());
  return call.of(std::string_view(addon.server->authorize(static_cast<u64>(call.number(0)), static_cast<Rights>(call.number(1)), call.bytes(2))));
}

// (connection) → {rights, tenant}
napi_value callerOf(Addon& addon, const Call& call) {
  const auto [rights, tenant] = addon.server ? addon.server->callerOf(static_cast<u64>(call.number(0))) : std::pair{Rights::none, std::string()};
  return call.record({{"rights", call.of(static_cast<double>(rights))}, {"tenant", call.latin1(tenant)}});
}

}  // namespace svc
