// The client's part of the addon: checksums of memory by address, and the blocking caller.
#include "addon/client.h"

#include <sys/file.h>

#include <memory>

#include "client/caller.h"
#include "base/checksum.h"
#include "addon/values.h"

namespace svc {

namespace {

constexpr std::size_t wordsPerRange = std::size(rangeNames);

// (the words of ranges; first; count) → XXH3 of the concatenation of those ranges
napi_value checksum(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    napi_typedarray_type type;
    void* data = nullptr;
    std::size_t words = 0;
    check(napi_get_typedarray_info(env, call.at(0), &type, &words, &data, nullptr, nullptr), "expected a BigUint64Array");
    const auto first = static_cast<std::size_t>(call.number(1)), count = static_cast<std::size_t>(call.number(2));
    if (type != napi_biguint64_array || (first + count) * wordsPerRange > words) throw std::invalid_argument("expected three words for each range");
    const u64 sum = checksumOf(static_cast<const u64*>(data) + first * wordsPerRange, count);
    return call.big(sum);
  });
}

// (descriptor) → whether we locked it; no other process can until it is closed.
napi_value lockFile(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    return call.of(flock(static_cast<int>(call.number(0)), LOCK_EX | LOCK_NB) == 0);
  });
}

// (host, port, timeoutMs)
napi_value constructCaller(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    auto caller = std::make_unique<Caller>(call.bytes(0), static_cast<u16>(call.number(1)), static_cast<u64>(call.number(2)));
    check(napi_wrap(env, call.self, caller.get(), [](napi_env, void* data, void*) { delete static_cast<Caller*>(data); }, nullptr, nullptr), "wrap");
    caller.release();
    return call.self;
  });
}

// (function, body, timeoutMs) → [error of the head, body]
napi_value callMaster(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    void* self = nullptr;
    check(napi_unwrap(env, call.self, &self), "not a caller, or one that was closed");
    u8 error = 0;
    const std::string_view body = static_cast<Caller*>(self)->call(static_cast<u32>(call.number(0)), call.buffer(1), static_cast<u64>(call.number(2)), error);
    const napi_value out = call.array(2);
    call.set(out, 0, call.of(static_cast<double>(error)));
    call.set(out, 1, call.copied(body));
    return out;
  });
}

napi_value closeCaller(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    void* self = nullptr;
    if (napi_remove_wrap(env, call.self, &self) == napi_ok) delete static_cast<Caller*>(self);
    return call.undefined();
  });
}

}  // namespace

void addClient(napi_env env, napi_value exports) {
  napi_value function = nullptr, type = nullptr;
  check(napi_create_function(env, "checksum", NAPI_AUTO_LENGTH, checksum, nullptr, &function), "function");
  check(napi_set_named_property(env, exports, "checksum", function), "export");
  check(napi_create_function(env, "lockFile", NAPI_AUTO_LENGTH, lockFile, nullptr, &function), "function");
  check(napi_set_named_property(env, exports, "lockFile", function), "export");
  const napi_property_descriptor methods[] = {
      {"call", nullptr, callMaster, nullptr, nullptr, nullptr, napi_default_method, nullptr},
      {"close", nullptr, closeCaller, nullptr, nullptr, nullptr, napi_default_method, nullptr},
  };
  check(napi_define_class(env, "NativeCaller", NAPI_AUTO_LENGTH, constructCaller, nullptr, 2, methods, &type), "class");
  check(napi_set_named_property(env, exports, "NativeCaller", type), "export");
}

}  // namespace svc
