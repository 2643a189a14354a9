// The methods that read or change the store: each runs between two iterations of the server thread, as a bounded slice.
#include <algorithm>
#include <iterator>
#include <span>

#include "addon/addon.h"

namespace svc {

namespace {

struct OwnedSpec {
  std::string name, endpoint, protocol, hostID;
  SegmentSpec spec;
  OwnedSpec(const Call& call, napi_value from) {
    const auto member = [&](const char* key) {
      napi_value value = nullptr;
      check(napi_get_named_property(call.env, from, key, &value), key);
      return value;
    };
    name = call.bytes(member("name"));
    endpoint = call.bytes(member("endpoint"));
    protocol = call.bytes(member("protocol"));
    hostID = call.bytes(member("hostID"));
    spec.id = idAt(call, member("id"));
    spec.base = call.bigOf(member("base"));
    spec.sizeBytes = call.bigOf(member("sizeBytes"));
  }
  SegmentSpec view() const {
    SegmentSpec out = spec;
    out.name = name;
    out.endpoint = endpoint;
    out.protocol = protocol;
    out.hostID = hostID;
    return out;
  }
};

constexpr std::size_t longestText = 4096;

// Like `changing`, but a full disk does not refuse holders that mount exactly what they had, so that their objects can be read.
template <typename Change>
napi_value mounting(Addon& addon, const Call& call, std::span<const SegmentSpec> specs, const Uuid& client, Change change) {
  Server& server = serving(addon);
  const i32 outcome = server.change([&] { return server.store.holders.holds(specs, client) || server.canLog() ? change(server.store) : i32{code::persistFail}; });
  return call.of(static_cast<double>(outcome));
}

}  // namespace

napi_value reportDurable(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  server.change([&] { server.reportDurable(); });
  return call.undefined();
}

// (segment, client) → code
napi_value mount(Addon& addon, const Call& call) {
  const OwnedSpec spec(call, call.at(0));
  const Uuid client = idAt(call, call.at(1));
  if (std::max({spec.name.size(), spec.endpoint.size(), spec.protocol.size(), spec.hostID.size()}) > longestText) return call.of(double{code::invalidParams});
  const SegmentSpec view = spec.view();
  return mounting(addon, call, std::span(&view, 1), client, [&](Store& store) { return store.holders.mount(view, client); });
}

// (segments, client) → code
napi_value remount(Addon& addon, const Call& call) {
  u32 length = 0;
  check(napi_get_array_length(call.env, call.at(0), &length), "expected an array");
  std::vector<OwnedSpec> specs;
  for (u32 i = 0; i < length; ++i) {
    napi_value each = nullptr;
    check(napi_get_element(call.env, call.at(0), i, &each), "element");
    specs.emplace_back(call, each);
    const OwnedSpec& spec = specs.back();
    if (std::max({spec.name.size(), spec.endpoint.size(), spec.protocol.size(), spec.hostID.size()}) > longestText) return call.of(double{code::invalidParams});
  }
  std::vector<SegmentSpec> views;
  for (const OwnedSpec& spec : specs) views.push_back(spec.view());
  const Uuid client = idAt(call, call.at(1));
  return mounting(addon, call, views, client, [&](Store& store) { return store.holders.remount(views, client); });
}

// (segment id, client id, grace in ms) → code
napi_value unmount(Addon& addon, const Call& call) {
  const Uuid id = idAt(call, call.at(0)), client = idAt(call, call.at(1));
  const u64 graceMs = static_cast<u64>(call.number(2));
  return changing(addon, call, [&](Store& store) { return store.holders.unmount(id, client, graceMs); });
}

napi_value setState(Addon& addon, const Call& call) {
  return changing(addon, call, [&](Store& store) { return store.holders.setState(static_cast<u32>(call.number(0)), static_cast<SegmentState>(call.number(1))); });
}

napi_value probed(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  return call.of(server.change([&] { return server.store.holders.probed(static_cast<u32>(call.number(0)), call.flag(1)); }));
}

// (client id): a process of the same name started again, so this one is presumed dead at once; its next ping would correct that.
napi_value suspect(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid id = idAt(call, call.at(0));
  server.change([&] {
    Store& store = server.store;
    const u32 client = store.cluster.findClient(id);
    if (client != 0 && store.cluster.client(client).known && !store.cluster.client(client).silent) store.holders.markSilent(client);
  });
  return call.undefined();
}

// (client id, queued tasks): while there are any, the client's fetches go to JavaScript.
napi_value setTasks(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid id = idAt(call, call.at(0));
  const bool known = server.change([&] {
    const u32 client = server.store.cluster.findClient(id);
    if (client != 0) server.store.cluster.client(client).tasks = static_cast<u32>(call.number(1));
    return client != 0;
  });
  return call.of(known);
}

napi_value addTenant(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::string name = call.bytes(0);
  const u16 tenant = server.change([&] { return server.store.tenants.add(name); });
  return call.of(tenant == Tenants::none ? -1.0 : static_cast<double>(tenant));
}

napi_value setQuota(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  server.change([&] { server.store.tenants.setQuota(static_cast<u16>(call.number(0)), call.flag(1), static_cast<u64>(call.number(2))); });
  return call.undefined();
}

namespace {
// (cursor, records to scan, tenant or "" for all, most) → [next cursor or 0, text of each readable object...]
template <typename Text>
napi_value listed(Addon& addon, const Call& call, Text text) {
  Server& server = serving(addon);
  u32 cursor = std::max(1u, static_cast<u32>(call.number(0)));
  u32 records = static_cast<u32>(call.number(1));
  const std::string name = call.bytes(2);
  const auto most = static_cast<std::size_t>(call.number(3));
  std::vector<std::string> found;
  const u32 next = server.with([&] {
    const Store& store = server.store;
    const u16 tenant = name.empty() ? Tenants::none : store.tenants.numberOf(name);
    for (; cursor < store.table.end() && records > 0 && found.size() < most; ++cursor, --records) {
      if (!store.table.live(cursor) || (!name.empty() && store.table[cursor].tenant != tenant)) continue;
      bool reachable = false;
      store.table.eachReplica(cursor, [&](const Replica& replica) { reachable = reachable || store.where.readable(replica); });
      if (reachable) found.emplace_back(text(store, cursor));
    }
    return cursor < store.table.end() ? cursor : 0;
  });
  const napi_value out = call.array(found.size() + 1);
  call.set(out, 0, call.of(static_cast<double>(next)));
  for (std::size_t i = 0; i < found.size(); ++i) call.set(out, i + 1, call.latin1(found[i]));
  return out;
}
}  // namespace

napi_value keys(Addon& addon, const Call& call) {
  return listed(addon, call, [](const Store& store, u32 index) { return store.table.keyOf(index); });
}
napi_value objects(Addon& addon, const Call& call) { return listed(addon, call, objectJson); }

// (keys, tenant, force) → the number of removed keys, or an error code
napi_value removeKeys(Addon& addon, const Call& call) {
  const std::vector<std::string> names = call.list(0);
  const std::string tenant = call.bytes(1);
  return changing(addon, call, [&](Store& store) {
    i32 removed = 0;
    for (const std::string& key : names) removed += store.puts.remove(store.tenants.numberOf(tenant), key, call.flag(2)) == code::ok;
    return removed;
  });
}

// (cursor, records to scan, tenant, force) → {code, next: the next cursor or 0, removed}
napi_value removeSome(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  u32 cursor = std::max(1u, static_cast<u32>(call.number(0)));
  u32 records = static_cast<u32>(call.number(1));
  const std::string name = call.bytes(2);
  const bool force = call.flag(3);
  u32 next = 0, removed = 0;
  const i32 outcome = server.change([&] {
    Store& store = server.store;
    if (!server.canLog()) return i32{code::persistFail};
    const u16 tenant = store.tenants.numberOf(name);
    // Mooncake's owners get no orders to remove single files; they ask whether everything was removed.
    if (cursor == 1) store.disks.wipe();
    for (; cursor < store.table.end() && records > 0; ++cursor, --records) {
      if (!store.table.live(cursor) || store.table[cursor].tenant != tenant) continue;
      const std::string key(store.table.keyOf(cursor));
      removed += store.puts.remove(tenant, key, force) == code::ok;
    }
    next = cursor < store.table.end() ? cursor : 0;
    return i32{code::ok};
  });
  return call.record({{"code", call.of(static_cast<double>(outcome))}, {"next", call.of(static_cast<double>(next))}, {"removed", call.of(static_cast<double>(removed))}});
}

// (keys, client id, segment name) → the keys that were cleared.
napi_value clearKeys(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::vector<std::string> names = call.list(0);
  const Uuid client = idAt(call, call.at(1));
  const std::string segment = call.bytes(2);
  std::vector<std::string> cleared;
  server.change([&] {
    if (!server.canLog()) return;
    for (const std::string& key : names)
      if (server.store.puts.clear(client, server.store.tenants.numberOf(""), key, segment) == code::ok) cleared.push_back(key);
  });
  return call.listOf(cleared, [&](const std::string& key) { return call.latin1(key); });
}

// (key, tenant) → {code, holders: [{segment, clientID} of each readable replica...]}
napi_value holdersOf(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::string key = call.bytes(0), tenant = call.bytes(1);
  std::vector<std::pair<u32, std::string>> holders;
  const i32 outcome = server.with([&] {
    u32 index = 0;
    Store& store = server.store;
    const i32 found = store.objects.read(store.tenants.numberOf(tenant), key, false, index);
    if (found != code::ok) return found;
    store.table.eachReplica(index, [&](const Replica& replica) {
      if (store.where.readable(replica) && !store.where.onDisk(replica)) holders.emplace_back(replica.segment, textOf(store.cluster.client(store.cluster.segment(replica.segment)->client).id));
    });
    return found;
  });
  const napi_value found = call.listOf(holders, [&](const auto& each) {
    return call.record({{"segment", call.of(static_cast<double>(each.first))}, {"clientID", call.of(std::string_view(each.second))}});
  });
  return call.record({{"code", call.of(static_cast<double>(outcome))}, {"holders", found}});
}

napi_value segments(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  return call.of(std::string_view(server.with([&] { return segmentsJson(server.store); })));
}
napi_value clients(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  return call.of(std::string_view(server.with([&] { return clientsJson(server.store); })));
}
napi_value tenants(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  return call.of(std::string_view(server.with([&] { return tenantsJson(server.store); })));
}
napi_value canLog(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  return call.of(server.with([&] { return server.canLog(); }));
}

}  // namespace svc
