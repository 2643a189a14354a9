// KV events for JavaScript's sockets: batches whose cause is in the log, and dumps of every key.
#include "addon/addon.h"

namespace svc {

namespace {

constexpr std::size_t takenBytes = 1 << 20;

using Batches = std::vector<std::pair<u64, std::string>>;

Batches durable(Server& server, u64 from) {
  Batches found;
  std::size_t bytes = 0;
  server.eachBatch(from, [&](const KvEvents::Batch& batch) {
    found.emplace_back(batch.sequence, batch.payload);
    bytes += batch.payload.size();
    return bytes < takenBytes;
  });
  return found;
}

napi_value listOf(const Call& call, const Batches& batches) {
  return call.listOf(batches, [&](const auto& batch) { return call.record({{"number", call.of(static_cast<double>(batch.first))}, {"payload", call.copied(batch.second)}}); });
}

}  // namespace

// () → [{number, payload}...]: unpublished batches; empty without any, and a "batches" event follows when there are more.
napi_value takeBatches(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Batches found = server.with([&] {
    Batches batches = durable(server, server.store.events.wanted());
    if (!batches.empty()) server.store.events.taken(batches.back().first + 1);
    else server.announceBatchesAgain();
    return batches;
  });
  return listOf(call, found);
}

// (number) → [{number, payload}...] from there on, as many as fit
napi_value batchesFrom(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const u64 from = static_cast<u64>(call.number(0));
  return listOf(call, server.with([&] { return durable(server, from); }));
}

// () → {first: its first batch's number, batches: how many there are}
napi_value beginDump(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  server.with([&] { addon.dump = server.store.announcer.beginDump(); });
  return call.record({{"first", call.of(static_cast<double>(addon.dump.first))}, {"batches", call.of(static_cast<double>(addon.dump.batches))}});
}

// (batches) → payloads; none once all were made.
napi_value dumpSome(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  std::vector<std::string> made;
  server.with([&] {
    std::string payload;
    std::size_t bytes = 0;
    for (u32 left = static_cast<u32>(call.number(0)); left > 0 && bytes < takenBytes && server.store.announcer.nextOf(addon.dump, payload); --left) {
      bytes += payload.size();
      made.push_back(std::move(payload));
    }
  });
  return call.listOf(made, [&](const std::string& each) { return call.copied(each); });
}

// (the number behind a dump's last batch): see Server::endDump.
napi_value endDump(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  server.change([&] { server.endDump(static_cast<u64>(call.number(0))); });
  return call.undefined();
}

// () → {oldest: the number of the oldest batch that a replay can deliver, next: the next one's}
napi_value batchRange(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const auto [oldest, next] = server.with([&] { return std::pair{server.store.events.oldest(), server.store.events.next()}; });
  return call.record({{"oldest", call.of(static_cast<double>(oldest))}, {"next", call.of(static_cast<double>(next))}});
}

}  // namespace svc
