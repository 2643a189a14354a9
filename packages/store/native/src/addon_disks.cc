// What the script asks for owners of disks: orders for them, and what they keep, drop and bring back.
#include <algorithm>

#include "addon_disks.h"

namespace svc {

namespace {

struct OwnedFile {
  std::string tenant, key, fingerprint, group;
  StoredFile file;
  OwnedFile(const Call& call, napi_value from) {
    tenant = call.bytes(get(call, from, "tenant"));
    key = call.bytes(get(call, from, "key"));
    fingerprint = call.bytes(get(call, from, "fingerprint"));
    group = call.bytes(get(call, from, "group"));
    file.size = call.big(get(call, from, "sizeBytes"));
    file.file = call.big(get(call, from, "file"));
    file.task = static_cast<u32>(call.number(get(call, from, "task")));
    file.checksum = call.big(get(call, from, "checksum"));
    file.dataType = static_cast<u8>(call.number(get(call, from, "dataType")));
    napi_value pin = get(call, from, "hardPin");
    check(napi_get_value_bool(call.env, pin, &file.hardPin), "hardPin");
  }
};

napi_value codesOf(const Call& call, const std::vector<i32>& codes) {
  const napi_value out = call.array(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) call.set(out, i, call.of(static_cast<double>(codes[i])));
  return out;
}

template <typename T>
std::vector<T> taken(std::vector<T>& from, std::size_t most) {
  std::vector<T> out(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(std::min(most, from.size())));
  from.erase(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(out.size()));
  return out;
}

}  // namespace

// (client id, {id, label, isOurs, isEnabled, capacityBytes, endpoint}) → code
napi_value mountDisk(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  DiskSpec spec;
  spec.id = idAt(call, call.member(1, "id"));
  spec.label = static_cast<u32>(call.number(call.member(1, "label")));
  spec.ours = call.flag(call.member(1, "isOurs"));
  spec.enabled = call.flag(call.member(1, "isEnabled"));
  spec.capacity = call.big(call.member(1, "capacityBytes"));
  const std::string endpoint = call.bytes(call.member(1, "endpoint"));
  spec.endpoint = endpoint;
  return changing(addon, call, [&](Store& store) { return store.mountDisk(spec, client); });
}

napi_value unmountDisks(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  return changing(addon, call, [&](Store& store) { return store.unmountDisks(client); });
}

// (client id, disk id, most objects to store, most of all else) → {offload, promote, drop, check}, or an error code.
napi_value diskOrders(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid client = idAt(call, call.at(0)), id = idAt(call, call.at(1));
  const u32 offloads = static_cast<u32>(call.number(2)), others = static_cast<u32>(call.number(3));
  std::vector<Ordered> offload, promote;
  std::vector<u64> drop;
  std::vector<Ordered> doubted;
  const bool found = server.change([&] {
    Store& store = server.store;
    Segment* disk = store.diskOf(client, id);
    if (disk == nullptr) return false;
    for (const Disk::Offload& each : store.takeOffloads(*disk, offloads)) {
      offload.push_back(ordered(store, each.index));
      offload.back().task = each.task;
      offload.back().address = each.address;
    }
    for (const u32 index : store.takePromotions(*disk, std::min(others, store.settings.promoteAtOnce))) {
      promote.push_back(ordered(store, index));
      promote.back().file = store.nodes[store.fileOn(index, *disk)->node].offset;
    }
    if (server.room()) drop = store.takeDropped(*disk, others);
    for (const Disk::Doubt& each : taken(disk->disk->doubted, others)) {
      Ordered& out = doubted.emplace_back();
      out.tenant = store.tenants[each.tenant].name;
      out.key = each.key;
      out.file = each.file;
    }
    return true;
  });
  if (!found) return call.of(double{code::segmentNotFound});
  const napi_value out = object(call);
  put(call, out, "offload", listOf(call, offload));
  put(call, out, "promote", listOf(call, promote));
  put(call, out, "drop", bigs(call, drop));
  put(call, out, "check", listOf(call, doubted));
  return out;
}

// (client id, disk id, files) → a code for each
napi_value keepFiles(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid client = idAt(call, call.at(0)), id = idAt(call, call.at(1));
  std::vector<OwnedFile> files;
  eachOf(call, 2, [&](napi_value each) { files.emplace_back(call, each); });
  std::vector<i32> codes;
  server.change([&] {
    Store& store = server.store;
    for (OwnedFile& each : files) {
      // One that fell out meanwhile stays in its place in the list.
      Segment* disk = store.diskOf(client, id);
      each.file.key = each.key;
      each.file.fingerprint = each.fingerprint;
      each.file.group = each.group;
      codes.push_back(!server.room() ? i32{code::persistFail} : disk == nullptr ? i32{code::segmentNotFound} : store.keepFile(*disk, store.tenantOf(each.tenant), each.file));
    }
  });
  return codesOf(call, codes);
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
    files.push_back({call.bytes(get(call, each, "tenant")), call.bytes(get(call, each, "key")), call.big(get(call, each, "file"))});
  });
  const Gone why = call.flag(3) ? Gone::checksum : Gone::evicted;
  return changing(addon, call, [&](Store& store) {
    Segment* disk = store.diskOf(client, id);
    if (disk == nullptr) return i32{code::segmentNotFound};
    for (const Dropped& each : files) store.dropFile(*disk, store.tenantOf(each.tenant), each.key, each.file, why);
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
    Segment* disk = store.diskOf(client, id);
    if (disk == nullptr) return i32{code::segmentNotFound};
    for (const Failed& each : failed) store.failOffload(*disk, store.tenantOf(each.tenant), each.key, each.task);
    return i32{code::ok};
  });
}

// (client id, tenant, key, bytes, preferred names) → [code, JSON of the range to write]
napi_value promoteStart(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid client = idAt(call, call.at(0));
  const std::string tenant = call.bytes(1), key = call.bytes(2);
  const u64 size = call.big(call.at(3));
  const std::vector<std::string> names = call.list(4);
  const std::vector<std::string_view> preferred(names.begin(), names.end());
  std::string json;
  const i32 outcome = server.change([&] {
    if (!server.room()) return i32{code::persistFail};
    Store& store = server.store;
    u32 index = 0;
    const i32 started = store.promoteStart(client, store.tenantOf(tenant), key, size, preferred, index);
    if (started == code::ok) json = targetJson(store, index);
    return started;
  });
  const napi_value out = call.array(2);
  call.set(out, 0, call.of(static_cast<double>(outcome)));
  call.set(out, 1, call.latin1(json));
  return out;
}

// (client id, tenant, key, whether it is whole) → code
napi_value promoteEnd(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  const std::string tenant = call.bytes(1), key = call.bytes(2);
  const bool whole = call.flag(3);
  return changing(addon, call, [&](Store& store) { return store.copyEnd(client, store.tenantOf(tenant), key, TaskKind::promote, !whole); });
}

// (tenant, key, replica id) → code
napi_value doubt(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::string tenant = call.bytes(0), key = call.bytes(1);
  const u64 replica = call.big(call.at(2));
  return call.of(static_cast<double>(server.change([&] { return server.store.doubt(server.store.tenantOf(tenant), key, replica); })));
}

napi_value disks(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  return call.of(std::string_view(server.with([&] { return disksJson(server.store); })));
}

}  // namespace svc
