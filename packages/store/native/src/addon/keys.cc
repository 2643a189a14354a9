// The methods that look up keys for JavaScript, and its notes.
#include "addon/addon.h"

namespace svc {

// (query string) → [status, body], as GET /query_key answers it. It takes no lease.
napi_value queryKey(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::string query = call.bytes(0);
  std::string body;
  const u32 status = server.with([&] { return queryKeyJson(server.store, query, body); });
  const napi_value out = call.array(2);
  call.set(out, 0, call.of(static_cast<double>(status)));
  call.set(out, 1, call.copied(body));
  return out;
}

// (key, tenant) → JSON, as an entry of /batch_query_keys. It takes no lease.
napi_value entry(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::string key = call.bytes(0), tenant = call.bytes(1);
  return call.of(std::string_view(server.with([&] { return entryJson(server.store, server.store.tenants.numberOf(tenant), key); })));
}

// (key, tenant) → JSON of its readable replicas; "[]" without any. It takes no lease.
napi_value descriptors(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::string key = call.bytes(0), tenant = call.bytes(1);
  return call.of(std::string_view(server.with([&] {
    u32 index = 0;
    Store& store = server.store;
    return store.objects.read(store.tenants.numberOf(tenant), key, false, index) == code::ok ? descriptorsJson(store, index) : std::string("[]");
  })));
}

// (key, tenant) → JSON of all its replicas; "" if the object does not exist. It takes no lease.
napi_value route(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::string key = call.bytes(0), tenant = call.bytes(1);
  return call.latin1(server.with([&] { return routeJson(server.store, server.store.tenants.numberOf(tenant), key); }));
}

// (segment, cursor, records to scan) → {next: the next cursor or 0, objects: [{tenant, key, sizeBytes, movable: whether it may be moved now}...]}
napi_value objectsOn(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const u32 segment = static_cast<u32>(call.number(0));
  u32 cursor = std::max(1u, static_cast<u32>(call.number(1)));
  u32 records = static_cast<u32>(call.number(2));
  struct Found {
    std::string tenant, key;
    u64 size;
    bool movable;
  };
  std::vector<Found> found;
  const u32 next = server.with([&] {
    const Store& store = server.store;
    for (; cursor < store.table.end() && records > 0; ++cursor, --records) {
      if (!store.table.live(cursor)) continue;
      const Object& object = store.table[cursor];
      bool here = false;
      store.table.eachReplica(cursor, [&](const Replica& replica) { here = here || replica.segment == segment; });
      if (!here) continue;
      const bool busy = (object.flags & flag::unfinished) || (object.extra != 0 && store.table.extras[object.extra].task != TaskKind::none);
      found.push_back({store.tenants[object.tenant].name, std::string(store.table.keyOf(cursor)), object.size, !busy});
    }
    return cursor < store.table.end() ? cursor : 0;
  });
  const napi_value objects = call.listOf(found, [&](const Found& each) {
    return call.record({{"tenant", call.latin1(each.tenant)}, {"key", call.latin1(each.key)}, {"sizeBytes", call.of(static_cast<double>(each.size))}, {"movable", call.of(each.movable)}});
  });
  return call.record({{"next", call.of(static_cast<double>(next))}, {"objects", objects}});
}

Uuid noteID(const std::string& text) {
  Uuid id;
  if (!uuidOf(text, id)) throw std::invalid_argument("expected an id of 32 hexadecimal digits");
  return id;
}

// (kind, [id, text...]) → whether the log took all, so that they survive a restart. They are one change, since each wakes the server thread.
napi_value keepNotes(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const auto kind = static_cast<u8>(call.number(0));
  std::vector<std::string> notes = call.list(1);
  std::vector<Uuid> ids;
  u64 bytes = 0;
  for (std::size_t i = 0; i + 1 < notes.size(); i += 2) {
    ids.push_back(noteID(notes[i]));
    bytes += notes[i + 1].size() + 64;
  }
  return call.of(server.change([&] {
    if (!server.canLog(bytes)) return false;
    for (std::size_t i = 0; i < ids.size(); ++i) server.store.notes.keep(kind, ids[i], std::move(notes[2 * i + 1]));
    return true;
  }));
}

// ([id...])
napi_value dropNotes(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  std::vector<Uuid> ids;
  for (const std::string& each : call.list(0)) ids.push_back(noteID(each));
  server.change([&] {
    for (const Uuid& id : ids) server.store.notes.drop(id);
  });
  return call.undefined();
}

// (kind) → texts
napi_value notes(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  std::vector<std::string> found;
  server.with([&] {
    for (const auto& [id, note] : server.store.notes.all())
      if (note.kind == static_cast<u8>(call.number(0))) found.push_back(note.text);
  });
  return call.listOf(found, [&](const std::string& text) { return call.latin1(text); });
}

}  // namespace svc
