// The Node-API face of the master: one class, whose methods src/master/native.ts declares.
#include "addon.h"

namespace svc {

namespace {

Settings settingsOf(const Call& call) {
  Settings settings;
  const auto whole = [&](const char* name) { return static_cast<u64>(call.number(call.member(0, name))); };
  settings.leaseMs = whole("leaseMs");
  settings.softPinMs = whole("softPinMs");
  settings.maxSoftPinMs = whole("maxSoftPinMs");
  settings.evictSoftPinned = call.flag(call.member(0, "evictSoftPinned"));
  settings.evictionRatio = call.number(call.member(0, "evictionRatio"));
  settings.highWatermark = call.number(call.member(0, "highWatermark"));
  settings.clientTtlMs = whole("clientTtlMs");
  settings.suspectMs = whole("suspectMs");
  settings.discardMs = whole("discardMs");
  settings.releaseMs = whole("releaseMs");
  settings.taskTimeoutMs = whole("taskTimeoutMs");
  settings.strategy = static_cast<Strategy>(whole("strategy"));
  settings.multiTenant = call.flag(call.member(0, "multiTenant"));
  return settings;
}

Limits limitsOf(const Call& call) {
  Limits limits;
  limits.frameBytes = static_cast<u32>(call.number(call.member(0, "maxFrameBytes")));
  limits.connections = static_cast<u32>(call.number(call.member(0, "maxConnections")));
  limits.totalBytes = static_cast<u64>(call.number(call.member(0, "maxBufferedBytes")));
  limits.halfFrameMs = static_cast<u64>(call.number(call.member(0, "halfFrameMs")));
  limits.snapshotBytes = static_cast<u64>(call.number(call.member(0, "snapshotBytes")));
  return limits;
}

Log::Options logOf(const Call& call) {
  Log::Options options;
  options.folder = call.bytes(call.member(0, "folder"));
  options.disk = call.flag(call.member(0, "disk"));
  options.fileBytes = static_cast<u64>(call.number(call.member(0, "logFileBytes")));
  return options;
}

// A C++ exception that leaves a callback would abort the process: each becomes a JavaScript one here.
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

template <Method method>
napi_value call(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    void* self = nullptr;
    check(napi_unwrap(env, call.self, &self), "not a master");
    return method(*static_cast<Addon*>(self), call);
  });
}

// On JavaScript's thread: one event of the thread that answers.
void deliver(napi_env env, napi_value callback, void*, void* data) {
  const std::unique_ptr<Event> event(static_cast<Event*>(data));
  if (env == nullptr) return;
  napi_value undefined = nullptr, values[5] = {};
  napi_get_undefined(env, &undefined);
  napi_create_uint32(env, static_cast<u32>(event->kind), &values[0]);
  napi_create_double(env, static_cast<double>(event->id), &values[1]);
  napi_create_uint32(env, event->seq, &values[2]);
  napi_create_uint32(env, event->function, &values[3]);
  napi_create_buffer_copy(env, event->body.size(), event->body.data(), nullptr, &values[4]);
  napi_value result = nullptr;
  napi_call_function(env, undefined, callback, std::size(values), values, &result);
}

// (options, onEvent)
napi_value construct(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    auto addon = std::make_unique<Addon>();
    check(napi_create_threadsafe_function(env, call.at(1), nullptr, call.of(std::string_view("svc_store")), 0, 1, nullptr, nullptr, nullptr, deliver, &addon->events),
          "expected a function");
    const auto tell = [events = addon->events](Event event) {
      auto* sent = new Event(std::move(event));
      if (napi_call_threadsafe_function(events, sent, napi_tsfn_nonblocking) != napi_ok) delete sent;
    };
    addon->server = std::make_unique<Server>(settingsOf(call), limitsOf(call), logOf(call), tell);
    const auto drop = [](napi_env, void* data, void*) { delete static_cast<Addon*>(data); };
    check(napi_wrap(env, call.self, addon.get(), drop, nullptr, nullptr), "wrap");
    addon.release();
    return call.self;
  });
}

// (function, argsHash, resultHash, operation, literal, constant body)
napi_value declare(Addon& addon, const Call& call) {
  Declared declared;
  const u32 function = static_cast<u32>(call.number(0));
  declared.argsHash = static_cast<u32>(call.number(1));
  declared.resultHash = static_cast<u32>(call.number(2));
  declared.op = opOf(call.bytes(3));
  declared.literal = call.buffer(4);
  declared.constant = call.buffer(5);
  addon.server->operations.declare(function, std::move(declared));
  return call.undefined();
}

napi_value listen(Addon& addon, const Call& call) {
  return call.of(static_cast<double>(addon.server->listen(call.bytes(0), static_cast<u16>(call.number(1)))));
}

napi_value start(Addon& addon, const Call& call) {
  addon.server->start();
  return call.undefined();
}

napi_value stop(Addon& addon, const Call& call) {
  addon.server->stop();
  if (addon.events != nullptr) napi_release_threadsafe_function(addon.events, napi_tsfn_release);
  addon.events = nullptr;
  addon.server.reset();
  return call.undefined();
}

// (connection, seq, error, body)
napi_value answer(Addon& addon, const Call& call) {
  if (addon.server) addon.server->answer(static_cast<u64>(call.number(0)), static_cast<u32>(call.number(1)), static_cast<u8>(call.number(2)), call.buffer(3));
  return call.undefined();
}

napi_value init(napi_env env, napi_value exports) {
  return guarded(env, [&] {
#define METHOD(name) {#name, nullptr, call<name>, nullptr, nullptr, nullptr, napi_default_method, nullptr}
    const napi_property_descriptor methods[] = {
        METHOD(declare),     METHOD(listen),     METHOD(start),     METHOD(stop),       METHOD(answer),     METHOD(tellDurable), METHOD(mount),
        METHOD(remount),     METHOD(unmount),    METHOD(setState),  METHOD(probed),     METHOD(setTasks),   METHOD(addTenant),   METHOD(setQuota),
        METHOD(replicas),    METHOD(entry),      METHOD(keys),      METHOD(removeKeys), METHOD(removeSome),  METHOD(clearKeys),
        METHOD(holdersOf),   METHOD(segments),   METHOD(clients),   METHOD(tenants),    METHOD(figures),    METHOD(opFigures),   METHOD(room),
    };
#undef METHOD
    napi_value type = nullptr;
    check(napi_define_class(env, "NativeMaster", NAPI_AUTO_LENGTH, construct, nullptr, std::size(methods), methods, &type), "class");
    check(napi_set_named_property(env, exports, "NativeMaster", type), "export");
    return exports;
  });
}

}  // namespace
}  // namespace svc

NAPI_MODULE(svc_store, svc::init)
