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

inline napi_value object(const Call& call) {
  napi_value out = nullptr;
  check(napi_create_object(call.env, &out), "object");
  return out;
}
inline void put(const Call& call, napi_value to, const char* name, napi_value value) { check(napi_set_named_property(call.env, to, name, value), name); }
inline napi_value big(const Call& call, u64 number) {
  napi_value value = nullptr;
  check(napi_create_bigint_uint64(call.env, number, &value), "bigint");
  return value;
}
inline napi_value bigs(const Call& call, const std::vector<u64>& numbers) {
  const napi_value out = call.array(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) call.set(out, i, big(call, numbers[i]));
  return out;
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
  out.fingerprint = store.fingerprintOf(from);
  out.group = store.groupName(from);
  out.size = from.size;
  out.hasChecksum = extra != nullptr && extra->hasChecksum;
  out.checksum = out.hasChecksum ? extra->checksum : 0;
  out.dataType = from.dataType;
  out.hardPin = (from.flags & flag::hardPin) != 0;
  return out;
}

inline napi_value shown(const Call& call, const Ordered& from) {
  const napi_value out = object(call);
  put(call, out, "tenant", call.latin1(from.tenant));
  put(call, out, "key", call.latin1(from.key));
  put(call, out, "fingerprint", call.latin1(from.fingerprint));
  put(call, out, "group", call.latin1(from.group));
  put(call, out, "sizeBytes", big(call, from.size));
  put(call, out, "address", big(call, from.address));
  put(call, out, "file", big(call, from.file));
  put(call, out, "task", call.of(static_cast<double>(from.task)));
  put(call, out, "checksum", from.hasChecksum ? big(call, from.checksum) : call.undefined());
  put(call, out, "dataType", call.of(static_cast<double>(from.dataType)));
  put(call, out, "hardPin", call.of(from.hardPin));
  return out;
}

inline napi_value listOf(const Call& call, const std::vector<Ordered>& from) {
  const napi_value out = call.array(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) call.set(out, i, shown(call, from[i]));
  return out;
}

}  // namespace svc
