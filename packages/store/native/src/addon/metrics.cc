// The values of the metrics, in the order that src/master/native.ts declares.
#include <iterator>

#include "addon/addon.h"

namespace svc {

napi_value metrics(Addon& addon, const Call& call) {
  std::vector<double> out;
  if (!addon.server) return call.numbers(out);
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
                           counters.replicasLost, server.operations.refusedLogFull})
      add(each);
    add(store.journal.nextLsn - 1);
    add(server.log().durableLsn());
    add(server.log().bytesSinceSnapshot());
    add(server.snapshot().taken());
    for (const u64 each : {store.events.publishedBatches, store.events.publishedEvents, store.events.droppedEvents, store.events.unparsedKeys}) add(each);
    u64 disks = 0, used = 0, capacity = 0, waiting = 0;
    for (u32 number = 1; number < store.cluster.segmentEnd(); ++number) {
      const Segment* segment = store.cluster.segment(number);
      if (segment == nullptr || segment->gone || !segment->onDisk() || segment->shared()) continue;
      ++disks;
      used += segment->disk->used;
      capacity += segment->disk->capacity;
      waiting += segment->disk->offload.size();
    }
    for (const u64 each : {disks, used, capacity, waiting, counters.offloadedObjects, counters.offloadedBytes, counters.offloadsFailed, counters.offloadsSkipped,
                           counters.promotedObjects, counters.promotionsFailed, counters.damagedFiles, counters.restoredObjects})
      add(each);
    const Segment* folder = store.folder();
    const Disk* shared = folder == nullptr || folder->gone ? nullptr : folder->disk.get();
    for (const u64 each : {shared ? shared->files : 0, shared ? shared->used : 0, shared && shared->capacity != ~u64{0} ? shared->capacity : 0, shared ? u64{shared->dropped.size()} : 0,
                           counters.filedObjects, counters.filesFailed, counters.filesEvicted, counters.filesRefused,
                           store.usedBytes(Tier::nof), store.capacityBytes(Tier::nof), counters.nofEvictedObjects, counters.nofEvictedBytes, counters.nofDamaged})
      add(each);
  };
  add(server.connections.load());
  add(server.accepted.load());
  add(server.refused.load());
  add(server.malformed.load());
  add(server.bufferedBytes.load());
  add(server.logFull() ? 1 : 0);
  if (serving) server.with(read);
  return call.numbers(out);
}

// Per native operation: requests, items, failed items, nanoseconds, then the counts of each bucket.
napi_value operationMetrics(Addon& addon, const Call& call) {
  std::vector<double> out;
  if (!addon.server || !addon.server->serving()) return call.numbers(out);
  Server& server = *addon.server;
  server.with([&] {
    for (const OperationMetrics& row : server.operations.metrics) {
      for (const u64 each : {row.requests, row.items, row.failedItems, row.nanoseconds}) out.push_back(static_cast<double>(each));
      for (const u64 each : row.within) out.push_back(static_cast<double>(each));
    }
  });
  return call.numbers(out);
}

}  // namespace svc
