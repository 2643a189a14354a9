// The numbers behind the metrics, in the order that src/master/native.ts names.
#include <iterator>

#include "addon.h"

namespace svc {

namespace {

napi_value listOf(const Call& call, const std::vector<double>& values) {
  const napi_value out = call.array(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) call.set(out, i, call.of(values[i]));
  return out;
}

}  // namespace

napi_value figures(Addon& addon, const Call& call) {
  std::vector<double> out;
  if (!addon.server) return listOf(call, out);
  Server& server = *addon.server;
  const bool serving = server.serving();
  const auto add = [&](auto value) { out.push_back(static_cast<double>(value)); };
  const auto read = [&] {
    const Store& store = server.store;
    const Counters& counters = store.counters;
    add(store.table.size());
    add(store.usedBytes());
    add(store.capacityBytes());
    add(store.unfinished());
    for (const u64 each : {counters.evictedObjects, counters.evictedBytes, counters.evictions, counters.allocationFailures, counters.discarded, counters.clientsLost,
                           counters.replicasLost, server.operations.refusedForRoom})
      add(each);
    add(store.journal.nextLsn - 1);
    add(server.log().durableLsn());
    add(server.log().bytesSinceSnapshot());
    add(server.snapshot().taken());
  };
  add(server.connections.load());
  add(server.accepted.load());
  add(server.refused.load());
  add(server.malformed.load());
  add(server.bufferedBytes.load());
  add(server.logFull() ? 1 : 0);
  if (serving) server.with(read);
  return listOf(call, out);
}

// Per native operation: requests, items, failed items, nanoseconds, then the counts of each bucket.
napi_value opFigures(Addon& addon, const Call& call) {
  std::vector<double> out;
  if (!addon.server || !addon.server->serving()) return listOf(call, out);
  Server& server = *addon.server;
  server.with([&] {
    for (const OpFigures& figure : server.operations.figures) {
      for (const u64 each : {figure.requests, figure.items, figure.failedItems, figure.nanoseconds}) out.push_back(static_cast<double>(each));
      for (const u64 each : figure.within) out.push_back(static_cast<double>(each));
    }
  });
  return listOf(call, out);
}

}  // namespace svc
