// Conversions between JavaScript and C++ values, and the state of one environment of the module.
#pragma once
#include <node_api.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "svc/transfer_engine.h"

namespace svc::node {

using EngineRef = std::shared_ptr<TransferEngine>;

struct Completion {
  uint32_t ticket = 0;
  int code = 0;
  std::string error;
};

/** Completions waiting for one environment's event loop. It is shared, since completions may outlive the environment. */
struct Mailbox {
  std::mutex mutex;
  std::vector<Completion> waiting;
  napi_threadsafe_function wake = nullptr;  // null once the environment is closing
};

struct Addon {
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  uint32_t pending = 0;
  /** Calls that timed out for their caller, by operation and arguments: the next caller of the same one waits for it. */
  std::map<std::string, std::shared_ptr<void>> outlasting;
};

/** Throws a TypeError in JavaScript and returns null. */
napi_value complain(napi_env env, const std::string& message);
/** The engine of an external; null after complain(). */
EngineRef engineOf(napi_env env, napi_value value);
std::string textOf(napi_env env, napi_value value);
uint64_t bigOf(napi_env env, napi_value value);
double numberOf(napi_env env, napi_value value);
bool truthOf(napi_env env, napi_value value);
/** The data and element count of a BigUint64Array. */
bool wordsOf(napi_env env, napi_value value, const uint64_t*& words, size_t& count);
napi_value toText(napi_env env, const std::string& text);
napi_value toNumber(napi_env env, double number);
napi_value toBig(napi_env env, uint64_t number);

Addon& addonOf(napi_env env);
void addMemory(napi_env env, napi_value exports);
void addCalls(napi_env env, napi_value exports);
void addTransfers(napi_env env, napi_value exports);
void addFunction(napi_env env, napi_value exports, const char* name, napi_callback callback);

/** Catches all C++ exceptions, since one that left a callback would terminate Node. */
template <napi_value (*Body)(napi_env, napi_callback_info)>
napi_value guarded(napi_env env, napi_callback_info info) {
  try {
    return Body(env, info);
  } catch (const std::exception& error) {
    return complain(env, error.what());
  }
}

}  // namespace svc::node
