// The client's part of the addon, next to the master's.
#pragma once
#include <node_api.h>

#include <exception>

namespace svc {

void addClient(napi_env env, napi_value exports);
void addFiles(napi_env env, napi_value exports);
void addShared(napi_env env, napi_value exports);

// A C++ exception that leaves a callback would abort the process, so each is rethrown as a JavaScript error here.
template <typename Body>
napi_value guarded(napi_env env, Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    napi_throw_error(env, nullptr, error.what());
  } catch (...) {
    napi_throw_error(env, nullptr, "unknown failure in the store");
  }
  return nullptr;
}

}  // namespace svc
