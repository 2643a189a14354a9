// The methods for Mooncake's owners of disks, which name objects by key and have no file numbers.
#include "addon/disks.h"

namespace svc {

// (client id, whether it takes objects, most) → objects to store, or an error code; a Mooncake owner's disk has the client's id.
napi_value mooncakeOrders(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid client = idAt(call, call.at(0));
  const bool enabled = call.flag(1);
  const u32 most = static_cast<u32>(call.number(2));
  std::vector<Ordered> offload;
  const bool found = server.change([&] {
    Segment* disk = server.store.disks.diskOf(client, client, true);
    if (disk == nullptr) return false;
    // This is the same process under the same id, so everything that it stored is still there.
    disk->awaiting = false;
    disk->disk->enabled = enabled;
    for (const Disk::Offload& each : server.store.disks.takeOffloads(*disk, most)) offload.push_back(ordered(server.store, each.index));
    return true;
  });
  return found ? listOf(call, offload) : call.of(double{code::segmentNotFound});
}

napi_value mooncakePromotions(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid client = idAt(call, call.at(0));
  std::vector<Ordered> promote;
  const bool found = server.change([&] {
    Store& store = server.store;
    Segment* disk = store.disks.diskOf(client, client);
    if (disk == nullptr) return false;
    for (const u32 index : store.disks.takePromotions(*disk, store.settings.promoteAtOnce)) promote.push_back(ordered(store, index));
    return true;
  });
  return found ? listOf(call, promote) : call.of(double{code::segmentNotFound});
}

// (client id, [{tenant, key, sizeBytes}...], endpoint) → code
napi_value keepMooncakeFiles(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  struct Kept {
    std::string tenant, key;
    u64 size;
  };
  std::vector<Kept> kept;
  eachOf(call, 1, [&](napi_value each) {
    kept.push_back({call.bytes(get(call, each, "tenant")), call.bytes(get(call, each, "key")), call.bigOf(get(call, each, "sizeBytes"))});
  });
  const std::string endpoint = call.bytes(2);
  return changing(addon, call, [&](Store& store) {
    Segment* disk = store.disks.diskOf(client, client, true);
    if (disk == nullptr) return i32{code::segmentNotFound};
    if (!endpoint.empty() && disk->endpoint != endpoint && endpoint.size() <= KeyArena::longest) {
      disk->endpoint = endpoint;
      store.journal.disk(*disk);
    }
    for (const Kept& each : kept) store.disks.keepMooncakeFile(*disk, store.tenants.numberOf(each.tenant), each.key, each.size);
    return i32{code::ok};
  });
}

// (client id, tenant, key) → code
napi_value dropMooncakeFile(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  const std::string tenant = call.bytes(1), key = call.bytes(2);
  return changing(addon, call, [&](Store& store) { return store.disks.dropMooncakeFile(client, store.tenants.numberOf(tenant), key); });
}

// (client id, bytes) → code
napi_value setCapacity(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  const u64 bytes = call.bigOf(call.at(1));
  return changing(addon, call, [&](Store& store) {
    Segment* disk = store.disks.diskOf(client, client);
    if (disk == nullptr) return i32{code::segmentNotFound};
    disk->disk->capacity = bytes;
    return i32{code::ok};
  });
}

// (client id) → 1 once after everything was removed, 0 otherwise, or an error code
napi_value takeWipe(Addon& addon, const Call& call) {
  const Uuid client = idAt(call, call.at(0));
  return changing(addon, call, [&](Store& store) {
    Segment* disk = store.disks.diskOf(client, client);
    if (disk == nullptr) return i32{code::segmentNotFound};
    const bool wipe = disk->disk->wipe;
    disk->disk->wipe = false;
    return i32{wipe};
  });
}

}  // namespace svc
