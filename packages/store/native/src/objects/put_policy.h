// Arguments of calls to the store, and its counters.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "events/kv_events.h"
#include "rpc/arguments.h"

namespace svc {

// A writer's put policy; its strings are views into the request.
struct PutPolicy {
  u64 replicas = 1, nofReplicas = 0, dfsReplicas = 0;
  u8 softPin = 0;  // 0 keep, 1 enable, 2 disable
  std::optional<u64> softPinMs;
  bool hardPin = false, sameNode = false;
  u8 dataType = 0;
  std::string_view hostID;
  std::vector<std::string_view> preferred, preferredNof;
  std::vector<std::string_view> avoided;  // endpoints that its writer could not reach
};

// Properties of the bytes that a writer gives once they are written.
struct Ended {
  std::optional<u64> checksum;
  std::string_view fingerprint;
};

using SegmentSpec = wire::Segment;

struct Tenant {
  std::string name;
  bool registered = false;
  u64 quota = 0, charged = 0;
  u64 announced[KvEvents::media] = {};  // objects that subscribers of KV events know
  u32 cursor = 1;     // where its own eviction continues
};

// The progress of a dump of every readable key, as batches of KV events whose numbers end right before the next one's.
struct Dump {
  u64 first = 0;
  u32 batches = 0, made = 0, end = 0;
  // Per tenant and medium: the next event's number, and the first that no longer belongs to the dump.
  std::vector<std::pair<u64, u64>> ids;
};

// A text that JavaScript keeps across restarts, by kind and id.
struct Note {
  u8 kind = 0;
  std::string text;
};

struct Counters {
  u64 evictedObjects = 0, evictedBytes = 0, evictions = 0, allocationFailures = 0, discarded = 0, clientsLost = 0, replicasLost = 0, restoredObjects = 0;
  u64 offloadedObjects = 0, offloadedBytes = 0, offloadsFailed = 0, offloadsSkipped = 0, promotedObjects = 0, promotionsFailed = 0, damagedFiles = 0;
  u64 freedRanges = 0;  // a put that found no space is retried once it changes
  u64 nofEvictedObjects = 0, nofEvictedBytes = 0, nofDamaged = 0;
  u64 filedObjects = 0, filesFailed = 0, filesEvicted = 0, filesRefused = 0;
};

}  // namespace svc
