// Conversions between JavaScript values and the orders for owners of disks.
#pragma once
#include "addon/addon.h"

namespace svc {

inline napi_value get(const Call& call, napi_value object, const char* name) {
  napi_value value = nullptr;
  check(napi_get_named_property(call.env, object, name, &value), name);
  return value;
}

// Calls `each` for every object of the list at `i`.
template <typename Each>
void eachOf(const Call& call, int i, Each each) {
  u32 length = 0;
  check(napi_get_array_length(call.env, call.at(i), &length), "expected an array");
  for (u32 at = 0; at < length; ++at) {
    napi_value value = nullptr;
    check(napi_get_element(call.env, call.at(i), at, &value), "element");
    each(value);
  }
}

// An object as an order names it. It is copied under the store's lock, and converted to JavaScript values afterwards.
struct Ordered {
  std::string tenant, key, fingerprint, group;
  u64 size = 0, address = 0, file = 0, checksum = 0;
  u32 task = 0;
  u8 dataType = 0;
  bool hasChecksum = false, hardPin = false;
};

inline Ordered ordered(const Store& store, u32 index) {
  const Object& from = store.table[index];
  const Extra* extra = from.extra == 0 ? nullptr : &store.table.extras[from.extra];
  Ordered out;
  out.tenant = store.tenants[from.tenant].name;
  out.key = store.table.keyOf(index);
  out.fingerprint = store.objects.fingerprintOf(from);
  out.group = store.groups.nameOf(from);
  out.size = from.size;
  out.hasChecksum = extra != nullptr && extra->hasChecksum;
  out.checksum = out.hasChecksum ? extra->checksum : 0;
  out.dataType = from.dataType;
  out.hardPin = (from.flags & flag::hardPin) != 0;
  return out;
}

inline napi_value shown(const Call& call, const Ordered& from) {
  return call.record({{"tenant", call.latin1(from.tenant)},
                      {"key", call.latin1(from.key)},
                      {"fingerprint", call.latin1(from.fingerprint)},
                      {"group", call.latin1(from.group)},
                      {"sizeBytes", call.big(from.size)},
                      {"address", call.big(from.address)},
                      {"file", call.big(from.file)},
                      {"task", call.of(static_cast<double>(from.task))},
                      {"checksum", from.hasChecksum ? call.big(from.checksum) : call.undefined()},
                      {"dataType", call.of(static_cast<double>(from.dataType))},
                      {"hardPin", call.of(from.hardPin)}});
}

inline napi_value listOf(const Call& call, const std::vector<Ordered>& from) {
  return call.listOf(from, [&](const Ordered& each) { return shown(call, each); });
}

}  // namespace svc
