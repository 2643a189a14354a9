// The master's Node-API class, whose methods src/master/native.ts declares; the client's part is in client.cc.
#include "addon/addon.h"
#include "addon/client.h"

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
  settings.putWaitMs = static_cast<u64>(call.number(call.member(0, "putWaitMs")));
  settings.aheadRatio = call.number(call.member(0, "aheadRatio"));
  settings.multiTenant = call.flag(call.member(0, "multiTenant"));
  settings.offload = call.flag(call.member(0, "offload"));
  settings.offloadOnEvict = call.flag(call.member(0, "offloadOnEvict"));
  settings.offloadForceEvict = call.flag(call.member(0, "offloadForceEvict"));
  settings.offloadCapRatio = call.number(call.member(0, "offloadCapRatio"));
  settings.offloadQueue = static_cast<u32>(whole("offloadQueue"));
  settings.nof = call.flag(call.member(0, "nof"));
  settings.nofEvictionRatio = call.number(call.member(0, "nofEvictionRatio"));
  settings.nofHighWatermark = call.number(call.member(0, "nofHighWatermark"));
  settings.folder = call.bytes(call.member(0, "folderPath"));
  settings.folderEvicts = call.flag(call.member(0, "folderEvicts"));
  settings.promoteOnHit = call.flag(call.member(0, "promoteOnHit"));
  settings.promoteThreshold = static_cast<u32>(whole("promoteThreshold"));
  settings.promoteAtOnce = static_cast<u32>(whole("promoteAtOnce"));
  settings.promoteQueue = static_cast<u32>(whole("promoteQueue"));
  return settings;
}

Limits limitsOf(const Call& call) {
  Limits limits;
  limits.frameBytes = static_cast<u32>(call.number(call.member(0, "maxFrameBytes")));
  limits.connections = static_cast<u32>(call.number(call.member(0, "maxConnections")));
  limits.httpConnections = static_cast<u32>(call.number(call.member(0, "maxHttpConnections")));
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
  // Uses the oldest format that fits, so that a release without disks or a shared folder can read the log while there are none.
  options.version = call.flag(call.member(0, "nof")) ? newestVersion : !call.bytes(call.member(0, "folderPath")).empty() ? withoutNof : call.flag(call.member(0, "offload")) ? withoutFolder : withoutDisks;
  return options;
}

KvEvents::Settings eventsOf(const Call& call) {
  KvEvents::Settings settings;
  settings.on = call.flag(call.member(0, "kvEvents"));
  settings.objectKey = call.flag(call.member(0, "emitObjectKey"));
  settings.legacy = call.flag(call.member(0, "emitLegacy"));
  settings.backend = call.bytes(call.member(0, "eventBackend"));
  settings.queueEvents = static_cast<u32>(call.number(call.member(0, "eventQueue")));
  return settings;
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

constexpr const char* eventArguments[] = {"kind", "id", "seq", "functionID", "body"};

// Runs on the JavaScript thread and delivers one event of the server thread.
void deliverEvents(napi_env env, napi_value callback, void*, void* data) {
  const std::unique_ptr<Event> event(static_cast<Event*>(data));
  if (env == nullptr) return;
  napi_value undefined = nullptr, values[std::size(eventArguments)] = {};
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
napi_value constructMaster(napi_env env, napi_callback_info info) {
  return guarded(env, [&] {
    const Call call(env, info);
    auto addon = std::make_unique<Addon>();
    check(napi_create_threadsafe_function(env, call.at(1), nullptr, call.of(std::string_view("svc_store")), 0, 1, nullptr, nullptr, nullptr, deliverEvents, &addon->events),
          "expected a function");
    const auto emit = [events = addon->events](Event event) {
      auto* sent = new Event(std::move(event));
      if (napi_call_threadsafe_function(events, sent, napi_tsfn_nonblocking) != napi_ok) delete sent;
    };
    addon->server = std::make_unique<Server>(settingsOf(call), limitsOf(call), logOf(call), emit);
    addon->server->store.events.configure(eventsOf(call));
    const auto drop = [](napi_env, void* data, void*) { delete static_cast<Addon*>(data); };
    check(napi_wrap(env, call.self, addon.get(), drop, nullptr, nullptr), "wrap");
    addon.release();
    return call.self;
  });
}

// (function, argsHash, resultHash, operation, literal, constant body, whether a tenant's key may call it)
napi_value declare(Addon& addon, const Call& call) {
  Declared declared;
  const u32 function = static_cast<u32>(call.number(0));
  declared.argsHash = static_cast<u32>(call.number(1));
  declared.resultHash = static_cast<u32>(call.number(2));
  declared.op = opOf(call.bytes(3));
  declared.literal = call.buffer(4);
  declared.constant = call.buffer(5);
  declared.tenants = call.flag(6);
  addon.server->operations.declare(function, std::move(declared));
  return call.undefined();
}

napi_value listen(Addon& addon, const Call& call) {
  return call.of(static_cast<double>(addon.server->listen(call.bytes(0), static_cast<u16>(call.number(1)))));
}

napi_value listenHttp(Addon& addon, const Call& call) {
  return call.of(static_cast<double>(addon.server->listenHttp(call.bytes(0), static_cast<u16>(call.number(1)), call.flag(2))));
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

// (connection, seq, error, body, whether it is a refusal)
napi_value answer(Addon& addon, const Call& call) {
  if (addon.server) addon.server->answer(static_cast<u64>(call.number(0)), static_cast<u32>(call.number(1)), static_cast<u8>(call.number(2)), call.buffer(3), call.flag(4));
  return call.undefined();
}

// src/rpc/native-names.ts has the same names, and refuses to load others: the numbers that cross to TypeScript are indices into these lists.
napi_value namesOf(const Call& call) {
  const auto list = [&](const auto& names) { return call.listOf(names, [&](const auto& name) { return call.of(std::string_view(name)); }); };
  const napi_value operations =
      call.listOf(countedOperations, [&](const CountedOperation& each) { return call.of(std::string_view(std::string(each.name) + "/" + std::to_string(each.argsHash))); });
  return call.record({{"metrics", list(metricNames())},
                      {"operations", operations},
                      {"operationMetrics", list(operationMetricNames())},
                      {"events", list(eventNames)},
                      {"event", list(eventArguments)},
                      {"strategies", list(strategyNames)},
                      {"rights", list(rightNames)},
                      {"missReasons", list(goneNames)},
                      {"range", list(rangeNames)}});
}

napi_value init(napi_env env, napi_value exports) {
  return guarded(env, [&] {
#define METHOD(name) {#name, nullptr, call<name>, nullptr, nullptr, nullptr, napi_default_method, nullptr}
    const napi_property_descriptor methods[] = {
        METHOD(declare),     METHOD(listen),     METHOD(start),     METHOD(stop),       METHOD(answer),     METHOD(reportDurable), METHOD(mount),
        METHOD(remount),     METHOD(unmount),    METHOD(setState),  METHOD(probed),     METHOD(setTasks),   METHOD(addTenant),   METHOD(setQuota),
        METHOD(queryKey),    METHOD(entry),      METHOD(keys),       METHOD(objects),      METHOD(removeKeys), METHOD(removeSome),  METHOD(clearKeys),
        METHOD(holdersOf),   METHOD(segments),   METHOD(clients),   METHOD(tenants),    METHOD(metrics),    METHOD(operationMetrics),   METHOD(canLog),
        METHOD(takeBatches), METHOD(batchesFrom), METHOD(beginDump), METHOD(dumpSome),   METHOD(endDump),    METHOD(batchRange),
        METHOD(descriptors), METHOD(objectsOn),   METHOD(keepNotes), METHOD(dropNotes),  METHOD(notes),      METHOD(listenHttp),
        METHOD(guard),       METHOD(authorize),   METHOD(callerOf),   METHOD(route),      METHOD(configureReplication), METHOD(listenPeers), METHOD(startStandby),
        METHOD(follow),      METHOD(lead),        METHOD(admitPeer),  METHOD(refusePeer), METHOD(forgetPeer), METHOD(retire),
        METHOD(peerHasAll),  METHOD(handOver),    METHOD(contacted),  METHOD(replication), METHOD(leased),
        METHOD(mountDisk),  METHOD(unmountDisks), METHOD(unmountDisk), METHOD(queueCold), METHOD(fillCold), METHOD(releaseCold), METHOD(filesOn),
        METHOD(dropFiles),   METHOD(failOffloads), METHOD(mooncakeOrders), METHOD(mooncakePromotions), METHOD(keepMooncakeFiles), METHOD(dropMooncakeFile),
        METHOD(setCapacity), METHOD(takeWipe),    METHOD(promoteStart), METHOD(promoteEnd), METHOD(reportWrongBytes),     METHOD(disks),     METHOD(suspect),
        METHOD(sharedFolder), METHOD(startFiles), METHOD(endFiles), METHOD(evictFiles), METHOD(setFolderQuota), METHOD(sweepable), METHOD(swept),
        METHOD(reportedFiles), METHOD(dropFile),
    };
#undef METHOD
    napi_value type = nullptr;
    check(napi_define_class(env, "NativeMaster", NAPI_AUTO_LENGTH, constructMaster, nullptr, std::size(methods), methods, &type), "class");
    check(napi_set_named_property(env, exports, "NativeMaster", type), "export");
    check(napi_set_named_property(env, exports, "names", namesOf(Call(env))), "export");
    addClient(env, exports);
    addFiles(env, exports);
    addShared(env, exports);
    return exports;
  });
}

}  // namespace
}  // namespace svc

NAPI_MODULE(svc_store, svc::init)
