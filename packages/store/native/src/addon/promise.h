// Promises that native threads settle; one queue per object carries the results to the JavaScript thread.
#pragma once
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "addon/values.h"

namespace svc {

// The result of one call on its way to the JavaScript thread.
struct Settled {
  napi_deferred promise = nullptr;
  int error = 0;
  std::function<napi_value(const Call&)> value;
};

// Maps errno to the names that callers distinguish.
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

// Creates the queue. It is unreferenced, so that it does not keep the process alive.
inline napi_threadsafe_function settlingQueue(const Call& call, std::string_view name) {
  napi_threadsafe_function queue = nullptr;
  check(napi_create_threadsafe_function(call.env, nullptr, nullptr, call.of(name), 0, 1, nullptr, nullptr, nullptr, settle, &queue), "function");
  napi_unref_threadsafe_function(call.env, queue);
  return queue;
}

// Returns a promise, and passes `begin` the function that settles it from any thread with 0 or an errno.
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
