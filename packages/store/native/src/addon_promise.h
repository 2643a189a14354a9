// Promises that threads of ours settle: what they found goes to JavaScript's thread by one queue per object.
#pragma once
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "values.h"

namespace svc {

// What became of one call, on its way back to JavaScript's thread.
struct Settled {
  napi_deferred promise = nullptr;
  int error = 0;
  std::function<napi_value(const Call&)> value;
};

// The names of errors that callers tell apart.
inline std::string nameOfError(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT: return "ENOSPC";
    case EBADMSG: return "EBADMSG";
    case ENOENT: return "ENOENT";
    case ECANCELED: return "ECANCELED";
    case ETIMEDOUT: return "ETIMEDOUT";
    case ENODEV: return "ENODEV";
    case EAGAIN: return "EAGAIN";
    case EACCES:
    case EPERM: return "EACCES";
    default: return "EIO";
  }
}

inline void settle(napi_env env, napi_value, void*, void* data) {
  const std::unique_ptr<Settled> settled(static_cast<Settled*>(data));
  if (env == nullptr) return;
  const Call call(env);
  if (settled->error == 0) {
    napi_resolve_deferred(env, settled->promise, settled->value ? settled->value(call) : call.undefined());
    return;
  }
  napi_value error = nullptr;
  napi_create_error(env, call.of(std::string_view(nameOfError(settled->error))), call.of(std::string_view(std::strerror(settled->error))), &error);
  napi_reject_deferred(env, settled->promise, error);
}

// The queue; it keeps no process alive.
inline napi_threadsafe_function settlingQueue(const Call& call, std::string_view name) {
  napi_threadsafe_function queue = nullptr;
  check(napi_create_threadsafe_function(call.env, nullptr, nullptr, call.of(name), 0, 1, nullptr, nullptr, nullptr, settle, &queue), "function");
  napi_unref_threadsafe_function(call.env, queue);
  return queue;
}

// A promise, and what settles it from another thread: given to `begin`, with 0 or an errno.
template <typename Begin>
napi_value promised(const Call& call, napi_threadsafe_function queue, Begin begin, std::function<napi_value(const Call&)> value = nullptr) {
  napi_value promise = nullptr;
  auto settled = std::make_unique<Settled>();
  check(napi_create_promise(call.env, &settled->promise, &promise), "promise");
  settled->value = std::move(value);
  begin([queue, raw = settled.release()](int error) {
    raw->error = error;
    if (napi_call_threadsafe_function(queue, raw, napi_tsfn_nonblocking) != napi_ok) delete raw;
  });
  return promise;
}

}  // namespace svc
