// The values of the metrics, each next to its name.
#include "addon/addon.h"

namespace svc {

namespace {

// The state that the metrics are read from, once for all of them.
struct Reading {
  const Server& server;
  const Store& store;
  const Counters& counters;
  u64 disks = 0, diskUsed = 0, diskCapacity = 0, offloadsWaiting = 0;
  const Disk* folder = nullptr;

  explicit Reading(const Server& server) : server(server), store(server.store), counters(server.store.counters) {}
  // Reads what belongs to the recovering thread until the log is read.
  void readDisks() {
    for (u32 number = 1; number < store.cluster.segmentEnd(); ++number) {
      const Segment* segment = store.cluster.segment(number);
      if (segment == nullptr || segment->gone || !segment->onDisk()) continue;
      if (segment->shared()) {
        folder = segment->disk.get();
        continue;
      }
      ++disks;
      diskUsed += segment->disk->used;
      diskCapacity += segment->disk->capacity;
      offloadsWaiting += segment->disk->offload.size();
    }
  }
};

struct Metric {
  const char* name;
  u64 (*value)(const Reading&);
};

#define SVC_MISSED(name, words) {"missed:" words, [](const Reading& of) -> u64 { return of.counters.missed[static_cast<u8>(Gone::name)]; }},
#define SVC_METRIC(name, expression) {name, [](const Reading& of) -> u64 { return expression; }}
constexpr Metric known[] = {
    SVC_METRIC("connections", of.server.connections.load()),
    SVC_METRIC("accepted", of.server.accepted.load()),
    SVC_METRIC("refused", of.server.refused.load()),
    SVC_METRIC("malformed", of.server.malformed.load()),
    SVC_METRIC("bufferedBytes", of.server.bufferedBytes.load()),
    SVC_METRIC("logFull", of.server.logFull()),
    // The values from here on are available once the log is read.
    SVC_METRIC("objects", of.store.table.size()),
    SVC_METRIC("usedBytes", of.store.space.usageOf(Tier::memory).used),
    SVC_METRIC("capacityBytes", of.store.space.usageOf(Tier::memory).capacity),
    SVC_METRIC("unfinished", of.store.objects.unfinished()),
    SVC_METRIC("evictedObjects", of.counters.evictedObjects),
    SVC_METRIC("evictedBytes", of.counters.evictedBytes),
    SVC_METRIC("evictions", of.counters.evictions),
    SVC_METRIC("allocationFailures", of.counters.allocationFailures),
    SVC_METRIC("discarded", of.counters.discarded),
    SVC_METRIC("clientsLost", of.counters.clientsLost),
    SVC_METRIC("replicasLost", of.counters.replicasLost),
    SVC_METRIC("refusedLogFull", of.server.operations.refusedLogFull),
    SVC_METRIC("lsn", of.store.journal.nextLsn - 1),
    SVC_METRIC("durableLsn", of.server.log().durableLsn()),
    SVC_METRIC("logBytes", of.server.log().bytesSinceSnapshot()),
    SVC_METRIC("snapshots", of.server.snapshot().taken()),
    SVC_METRIC("eventBatches", of.store.events.publishedBatches),
    SVC_METRIC("events", of.store.events.publishedEvents),
    SVC_METRIC("eventsDropped", of.store.events.droppedEvents),
    SVC_METRIC("keysUnparsed", of.store.events.unparsedKeys),
    SVC_METRIC("disks", of.disks),
    SVC_METRIC("diskUsedBytes", of.diskUsed),
    SVC_METRIC("diskCapacityBytes", of.diskCapacity),
    SVC_METRIC("offloadsWaiting", of.offloadsWaiting),
    SVC_METRIC("offloadedObjects", of.counters.offloadedObjects),
    SVC_METRIC("offloadedBytes", of.counters.offloadedBytes),
    SVC_METRIC("offloadsFailed", of.counters.offloadsFailed),
    SVC_METRIC("offloadsSkipped", of.counters.offloadsSkipped),
    SVC_METRIC("promotedObjects", of.counters.promotedObjects),
    SVC_METRIC("promotionsFailed", of.counters.promotionsFailed),
    SVC_METRIC("damagedFiles", of.counters.damagedFiles),
    SVC_METRIC("restoredObjects", of.counters.restoredObjects),
    SVC_METRIC("folderFiles", of.folder ? of.folder->files : 0),
    SVC_METRIC("folderUsedBytes", of.folder ? of.folder->used : 0),
    SVC_METRIC("folderQuotaBytes", of.folder && of.folder->capacity != ~u64{0} ? of.folder->capacity : 0),
    SVC_METRIC("folderDropped", of.folder ? of.folder->dropped.size() : 0),
    SVC_METRIC("filedObjects", of.counters.filedObjects),
    SVC_METRIC("filesFailed", of.counters.filesFailed),
    SVC_METRIC("filesEvicted", of.counters.filesEvicted),
    SVC_METRIC("filesRefused", of.counters.filesRefused),
    SVC_METRIC("nofUsedBytes", of.store.space.usageOf(Tier::nof).used),
    SVC_METRIC("nofCapacityBytes", of.store.space.usageOf(Tier::nof).capacity),
    SVC_METRIC("nofEvictedObjects", of.counters.nofEvictedObjects),
    SVC_METRIC("nofEvictedBytes", of.counters.nofEvictedBytes),
    SVC_METRIC("nofDamaged", of.counters.nofDamaged),
    SVC_GONE(SVC_MISSED)
};
#undef SVC_METRIC
#undef SVC_MISSED
constexpr std::size_t beforeRecovery = 6;

struct OperationMetric {
  const char* name;
  u64 OperationMetrics::*value;
};
constexpr OperationMetric counted[] = {{"requests", &OperationMetrics::requests}, {"items", &OperationMetrics::items}, {"failedItems", &OperationMetrics::failedItems}, {"nanoseconds", &OperationMetrics::nanoseconds}};

}  // namespace

std::vector<std::string> metricNames() {
  std::vector<std::string> out;
  for (const Metric& each : known) out.emplace_back(each.name);
  return out;
}

std::vector<std::string> operationMetricNames() {
  std::vector<std::string> out;
  for (const OperationMetric& each : counted) out.emplace_back(each.name);
  for (u32 i = 0; i + 1 < OperationMetrics::buckets; ++i) out.push_back("below" + std::to_string(2u << i) + "us");
  out.emplace_back("slower");
  return out;
}

napi_value metrics(Addon& addon, const Call& call) {
  std::vector<double> out;
  if (!addon.server) return call.numbers(out);
  Reading reading(*addon.server);
  const auto add = [&](const Metric& each) { out.push_back(static_cast<double>(each.value(reading))); };
  std::for_each(known, known + beforeRecovery, add);
  if (addon.server->serving())
    addon.server->with([&] {
      reading.readDisks();
      std::for_each(known + beforeRecovery, std::end(known), add);
    });
  return call.numbers(out);
}

// A row for each of `countedOperations`.
napi_value operationMetrics(Addon& addon, const Call& call) {
  std::vector<double> out;
  if (!addon.server || !addon.server->serving()) return call.numbers(out);
  Server& server = *addon.server;
  server.with([&] {
    for (const OperationMetrics& row : server.operations.metrics) {
      for (const OperationMetric& each : counted) out.push_back(static_cast<double>(row.*each.value));
      for (const u64 each : row.within) out.push_back(static_cast<double>(each));
    }
  });
  return call.numbers(out);
}

}  // namespace svc
