// Memory for transfers: shared allocations as ArrayBuffers, and the addresses of any view.
#include "convert.h"

namespace svc::node {

namespace {

napi_value wrap(napi_env env, void* base, size_t size) {
  if (base == nullptr) {
    napi_throw_error(env, nullptr, lastError().c_str());
    return nullptr;
  }
  napi_value buffer = nullptr;
  auto release = [](napi_env, void* data, void*) { freeShared(data); };
  if (napi_create_external_arraybuffer(env, base, size, release, nullptr, &buffer) == napi_ok) return buffer;
  freeShared(base);
  return complain(env, "this runtime takes no external memory");
}

/** alloc(sizeBytes) */
napi_value alloc(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value args[1];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  size_t size = size_t(numberOf(env, args[0]));
  return wrap(env, allocateShared(size), size);
}

/** openShm(name, sizeBytes, create) */
napi_value openShm(napi_env env, napi_callback_info info) {
  size_t count = 3;
  napi_value args[3];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  size_t size = size_t(numberOf(env, args[1]));
  return wrap(env, openShared(textOf(env, args[0]), size, truthOf(env, args[2])), size);
}

/** unlinkShm(name): 0 or negative */
napi_value unlinkShm(napi_env env, napi_callback_info info) {
  size_t count = 1;
  napi_value args[1];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  return toNumber(env, unlinkShared(textOf(env, args[0])));
}

/** addressOf(view): the address of its first byte, or 0n without memory. */
napi_value addressOf(napi_env env, napi_callback_info info) {
  size_t count = 1, length = 0;
  napi_value args[1];
  napi_get_cb_info(env, info, &count, args, nullptr, nullptr);
  void* data = nullptr;
  bool is = false;
  if (napi_is_typedarray(env, args[0], &is) == napi_ok && is) napi_get_typedarray_info(env, args[0], nullptr, nullptr, &data, nullptr, nullptr);
  else if (napi_is_dataview(env, args[0], &is) == napi_ok && is) napi_get_dataview_info(env, args[0], nullptr, &data, nullptr, nullptr);
  else if (napi_is_arraybuffer(env, args[0], &is) == napi_ok && is) napi_get_arraybuffer_info(env, args[0], &data, &length);
  else return complain(env, "expected an ArrayBuffer or a view");
  return toBig(env, reinterpret_cast<uint64_t>(data));
}

}  // namespace

void addMemory(napi_env env, napi_value exports) {
  addFunction(env, exports, "alloc", guarded<alloc>);
  addFunction(env, exports, "openShm", guarded<openShm>);
  addFunction(env, exports, "unlinkShm", guarded<unlinkShm>);
  addFunction(env, exports, "addressOf", guarded<addressOf>);
}

}  // namespace svc::node
