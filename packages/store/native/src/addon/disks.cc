// The methods for owners of disks: mounting, dropped files, failed offloads, promotions and damaged replicas.
#include <algorithm>

#include "addon/disks.h"

namespace svc {

// (client id, {id, label, isOurs, isEnabled, capacityBytes, endpoint}) → code
napi_value mountDisk(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  DiskSpec spec;
  spec.id = idAt(call, call.member(1, "id"));
  spec.label = static_cast<u32>(call.number(call.member(1, "label")));
  spec.ours = call.flag(call.member(1, "isOurs"));
  spec.enabled = call.flag(call.member(1, "isEnabled"));
  spec.capacity = call.bigOf(call.member(1, "capacityBytes"));
  const std::string endpoint = call.bytes(call.member(1, "endpoint"));
  spec.endpoint = endpoint;
  return changing(addon, call, [&](Store& store) { return store.disks.mount(spec, client); });
}

napi_value unmountDisks(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  return changing(addon, call, [&](Store& store) { return store.disks.unmountAll(client); });
}

// (client id, disk id, [{tenant, key, file}...], whether they are damaged) → code
napi_value dropFiles(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0)), id = idAt(call, call.at(1));
  struct Dropped {
    std::string tenant, key;
    u64 file;
  };
  std::vector<Dropped> files;
  eachOf(call, 2, [&](napi_value each) {
    files.push_back({call.bytes(get(call, each, "tenant")), call.bytes(get(call, each, "key")), call.bigOf(get(call, each, "file"))});
  });
  const Gone why = call.flag(3) ? Gone::checksum : Gone::evicted;
  return changing(addon, call, [&](Store& store) {
    Segment* disk = store.disks.diskOf(client, id);
    if (disk == nullptr) return i32{code::segmentNotFound};
    for (const Dropped& each : files) store.disks.dropFile(*disk, store.tenants.numberOf(each.tenant), each.key, each.file, why);
    return i32{code::ok};
  });
}

// (client id, disk id, [{tenant, key, task}...]) → code
napi_value failOffloads(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0)), id = idAt(call, call.at(1));
  struct Failed {
    std::string tenant, key;
    u32 task;
  };
  std::vector<Failed> failed;
  eachOf(call, 2, [&](napi_value each) {
    failed.push_back({call.bytes(get(call, each, "tenant")), call.bytes(get(call, each, "key")), static_cast<u32>(call.number(get(call, each, "task")))});
  });
  return changing(addon, call, [&](Store& store) {
    Segment* disk = store.disks.diskOf(client, id);
    if (disk == nullptr) return i32{code::segmentNotFound};
    for (const Failed& each : failed) store.disks.failOffload(*disk, store.tenants.numberOf(each.tenant), each.key, each.task);
    return i32{code::ok};
  });
}

// (client id, tenant, key, bytes, preferred names) → {code, target: JSON of the range to write}
napi_value promoteStart(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid client = idAt(call, call.at(0));
  const std::string tenant = call.bytes(1), key = call.bytes(2);
  const u64 size = call.bigOf(call.at(3));
  const std::vector<std::string> names = call.list(4);
  const std::vector<std::string_view> preferred(names.begin(), names.end());
  std::string json;
  const i32 outcome = server.change([&] {
    if (!server.canLog()) return i32{code::persistFail};
    Store& store = server.store;
    u32 index = 0;
    const i32 started = store.copies.startPromotion(client, store.tenants.numberOf(tenant), key, size, preferred, index);
    if (started == code::ok) json = targetJson(store, index);
    return started;
  });
  return call.record({{"code", call.of(static_cast<double>(outcome))}, {"target", call.latin1(json)}});
}

// (client id, tenant, key, whether it is complete) → code
napi_value promoteEnd(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  const std::string tenant = call.bytes(1), key = call.bytes(2);
  const bool whole = call.flag(3);
  return changing(addon, call, [&](Store& store) { return store.copies.end(client, store.tenants.numberOf(tenant), key, TaskKind::promote, !whole); });
}

// (tenant, key, replica id) → code
napi_value reportWrongBytes(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::string tenant = call.bytes(0), key = call.bytes(1);
  const u64 replica = call.bigOf(call.at(2));
  return call.of(static_cast<double>(server.change([&] { return server.store.disks.reportWrongBytes(server.store.tenants.numberOf(tenant), key, replica); })));
}

napi_value disks(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  return call.of(std::string_view(server.with([&] { return disksJson(server.store); })));
}

}  // namespace svc
