// The methods for devices of the cold tier: queueing objects, listing files, and releasing files.
#include <algorithm>

#include "addon/disks.h"

namespace svc {

// (client id, disk id, whether it must be empty) → code
napi_value unmountDisk(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0)), id = idAt(call, call.at(1));
  const bool empty = call.flag(2);
  return changing(addon, call, [&](Store& store) { return store.disks.unmount(client, id, empty); });
}

// (client id, disk id, tenant or "" for all, most, records to scan) → {code, queued, hasEnded: whether the whole table was scanned}
napi_value queueCold(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid client = idAt(call, call.at(0)), id = idAt(call, call.at(1));
  const std::string tenant = call.bytes(2);
  const u32 most = static_cast<u32>(call.number(3)), records = static_cast<u32>(call.number(4));
  i32 outcome = code::ok;
  u32 queued = 0;
  bool ended = false;
  server.change([&] {
    Store& store = server.store;
    Segment* disk = store.disks.diskOf(client, id);
    const u16 wanted = tenant.empty() ? Tenants::none : store.tenants.numberOf(tenant);
    if (disk == nullptr || !disk->cold()) outcome = code::segmentNotFound;
    else if (!tenant.empty() && wanted == Tenants::none) ended = true;
    else queued = store.disks.queueCold(*disk, wanted, most, records, ended);
  });
  return call.record({{"code", call.of(static_cast<double>(outcome))}, {"queued", call.of(static_cast<double>(queued))}, {"hasEnded", call.of(ended)}});
}

// (client id, disk id, which objects: 0 requested, 1 about to be evicted, 2 stored; tenant, "" for all) → code
napi_value fillCold(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0)), id = idAt(call, call.at(1));
  const auto fills = static_cast<Disk::Fills>(static_cast<u8>(call.number(2)));
  const std::string tenant = call.bytes(3);
  if (fills > Disk::Fills::stored) return call.of(double{code::invalidParams});
  return changing(addon, call, [&](Store& store) { return store.disks.fillCold(client, id, fills, tenant); });
}

// (disk id, tenant, key, file) → code
napi_value releaseCold(Addon& addon, const Call& call) {
  const Uuid id = idAt(call, call.at(0));
  const std::string tenant = call.bytes(1), key = call.bytes(2);
  const u64 file = call.bigOf(call.at(3));
  return changing(addon, call, [&](Store& store) { return store.disks.releaseCold(id, store.tenants.numberOf(tenant), key, file); });
}

// (disk id, cursor, records to scan) → {next: the next cursor or 0, files: [{tenant, key, sizeBytes, file, isHot: whether it is in memory too}...]}
napi_value filesOn(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid id = idAt(call, call.at(0));
  u32 cursor = std::max(1u, static_cast<u32>(call.number(1)));
  u32 records = static_cast<u32>(call.number(2));
  struct Found {
    std::string tenant, key;
    u64 size, file;
    bool hot;
  };
  std::vector<Found> found;
  const u32 next = server.with([&] {
    Store& store = server.store;
    const Segment* disk = store.cluster.findSegment(id);
    if (disk == nullptr || !disk->onDisk()) return 0u;
    for (; cursor < store.table.end() && records > 0; ++cursor, --records) {
      if (!store.table.live(cursor)) continue;
      const Replica* file = store.where.fileOn(cursor, *disk);
      if (file == nullptr) continue;
      bool hot = false;
      store.table.eachReplica(cursor, [&](const Replica& replica) { hot = hot || (store.where.inMemory(replica) && store.where.readable(replica)); });
      const Object& object = store.table[cursor];
      found.push_back({store.tenants[object.tenant].name, std::string(store.table.keyOf(cursor)), object.size, store.nodes[file->node].offset, hot});
    }
    return cursor < store.table.end() ? cursor : 0;
  });
  const napi_value files = call.listOf(found, [&](const Found& each) {
    return call.record({{"tenant", call.latin1(each.tenant)}, {"key", call.latin1(each.key)}, {"sizeBytes", call.big(each.size)}, {"file", call.big(each.file)}, {"isHot", call.of(each.hot)}});
  });
  return call.record({{"next", call.of(static_cast<double>(next))}, {"files", files}});
}

}  // namespace svc
