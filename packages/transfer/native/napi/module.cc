// The module's entry: engines as externals, conversions, and the delivery of completions to the event loop.
#include <exception>

#include "convert.h"

namespace svc::node {

napi_value complain(napi_env env, const std::string& message) {
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (!pending) napi_throw_type_error(env, nullptr, message.c_str());
  return nullptr;
}

EngineRef engineOf(napi_env env, napi_value value) {
  void* data = nullptr;
  napi_valuetype type;
  if (napi_typeof(env, value, &type) != napi_ok || type != napi_external || napi_get_value_external(env, value, &data) != napi_ok) {
    complain(env, "expected an engine");
    return nullptr;
  }
  return *static_cast<EngineRef*>(data);
}

std::string textOf(napi_env env, napi_value value) {
  size_t length = 0;
  if (napi_get_value_string_utf8(env, value, nullptr, 0, &length) != napi_ok) return "";
  std::string text(length, '\0');
  napi_get_value_string_utf8(env, value, text.data(), length + 1, &length);
  return text;
}

uint64_t bigOf(napi_env env, napi_value value) {
  uint64_t number = 0;
  bool lossless = false;
  napi_get_value_bigint_uint64(env, value, &number, &lossless);
  return number;
}

double numberOf(napi_env env, napi_value value) {
  double number = 0;
  napi_get_value_double(env, value, &number);
  return number;
}

bool truthOf(napi_env env, napi_value value) {
  bool truth = false;
  napi_get_value_bool(env, value, &truth);
  return truth;
}

bool wordsOf(napi_env env, napi_value value, const uint64_t*& words, size_t& count) {
  napi_typedarray_type type;
  void* data = nullptr;
  if (napi_get_typedarray_info(env, value, &type, &count, &data, nullptr, nullptr) != napi_ok || type != napi_biguint64_array) {
    complain(env, "expected a BigUint64Array");
    return false;
  }
  words = static_cast<const uint64_t*>(data);
  return true;
}

napi_value toText(napi_env env, const std::string& text) {
  napi_value value = nullptr;
  napi_create_string_utf8(env, text.data(), text.size(), &value);
  return value;
}

napi_value toNumber(napi_env env, double number) {
  napi_value value = nullptr;
  napi_create_double(env, number, &value);
  return value;
}

napi_value toBig(napi_env env, uint64_t number) {
  napi_value value = nullptr;
  napi_create_bigint_uint64(env, number, &value);
  return value;
}

Addon& addonOf(napi_env env) {
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  return *static_cast<Addon*>(data);
}

void addFunction(napi_env env, napi_value exports, const char* name, napi_callback callback) {
  napi_value function = nullptr;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, nullptr, &function);
  napi_set_named_property(env, exports, name, function);
}

namespace {

/** create(autoDiscover, filters): the engine, as an external. */
napi_value create(napi_env env, napi_callback_info info) {
  size_t count = 2;
  napi_value args[2];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  std::vector<std::string> filters;
  uint32_t length = 0;
  napi_get_array_length(env, args[1], &length);
  for (uint32_t i = 0; i < length; i++) {
    napi_value item = nullptr;
    napi_get_element(env, args[1], i, &item);
    filters.push_back(textOf(env, item));
  }
  auto* engine = new EngineRef(std::make_shared<TransferEngine>(truthOf(env, args[0]), filters));
  napi_value external = nullptr;
  auto destroy = [](napi_env, void* data, void*) { delete static_cast<EngineRef*>(data); };
  napi_create_external(env, engine, destroy, nullptr, &external);
  return external;
}

}  // namespace
}  // namespace svc::node

extern "C" NAPI_MODULE_EXPORT napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  using namespace svc::node;
  auto* addon = new Addon();
  napi_set_instance_data(env, addon, [](napi_env, void* data, void*) {
    auto* gone = static_cast<Addon*>(data);
    // The mailbox itself is shared with requests that are still in flight.
    auto mailbox = gone->mailbox;
    delete gone;
    std::lock_guard lock(mailbox->mutex);
    mailbox->wake = nullptr;
  }, nullptr);
  addFunction(env, exports, "create", guarded<create>);
  addMemory(env, exports);
  addCalls(env, exports);
  addTransfers(env, exports);
  return exports;
}

extern "C" NAPI_MODULE_EXPORT int32_t node_api_module_get_api_version_v1() { return NAPI_VERSION; }
