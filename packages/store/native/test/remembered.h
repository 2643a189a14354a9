// Shared by the store's tests: segments, a check for overlapping ranges, and holders that remember what the table has.
#pragma once
#include <map>
#include <unordered_map>

#include "store.h"
#include "check.h"

namespace svc {

inline SegmentSpec segmentOf(u64 number, u64 client, u64 size) {
  static std::map<u64, std::string> names;
  std::string& name = names.try_emplace(number, "host-" + std::to_string(client) + ":" + std::to_string(number)).first->second;
  SegmentSpec spec;
  spec.id = {number, 77};
  spec.name = spec.endpoint = name;
  spec.protocol = "tcp";
  spec.base = number << 40;
  spec.sizeBytes = size;
  return spec;
}

// Requires that no byte belongs to two objects.
inline void requireDisjoint(Store& store) {
  std::map<std::pair<u32, u64>, u64> ranges;
  for (u32 index = 1; index < store.table.end(); ++index) {
    if (!store.table.live(index)) continue;
    store.table.eachReplica(index, [&](const Replica& replica) {
      const Segment* segment = store.cluster.segment(replica.segment);
      if (segment == nullptr || segment->gone || segment->onDisk()) return;
      REQUIRE(segment->allocator.sizeOf(replica.node) == store.table[index].size);
      ranges[{replica.segment, segment->allocator.offsetOf(replica.node)}] = store.table[index].size;
    });
  }
  u64 end = 0;
  u32 last = 0;
  for (const auto& [at, size] : ranges) {
    REQUIRE(at.first != last || at.second >= end);
    last = at.first;
    end = at.second + size;
  }
  for (u32 number = 1; number < store.cluster.segmentEnd(); ++number)
    if (const Segment* segment = store.cluster.segment(number); segment != nullptr) REQUIRE(segment->allocator.sound());
}

struct Seen {
  std::string key;
  u64 size, checksum;
  bool operator==(const Seen&) const = default;
};

// One holder's memory, as its client keeps it: changes come a few at a time, and a scan from the start replaces what it does not repeat.
struct Memory {
  std::map<u64, Seen> now, earlier;

  bool follow(Store& store, const Uuid& client, u32 most, bool fromStart) {
    Changes changes;
    if (store.restores.takeChanges(client, fromStart, most, changes) != 0) return false;
    if (changes.begins) {
      now.merge(earlier);
      earlier = std::move(now);
      now.clear();
    }
    for (const u64 address : changes.gone) {
      now.erase(address);
      earlier.erase(address);
    }
    for (const auto& [index, address] : changes.held) {
      earlier.erase(address);
      now[address] = {std::string(store.table.keyOf(index)), store.table[index].size, store.table.extras[store.table[index].extra].checksum};
    }
    if (changes.isWhole) earlier.clear();
    return changes.more;
  }
};

// The objects in a client's memory according to the table, as far as their bytes can be verified.
inline std::map<u64, Seen> heldBy(Store& store, const Uuid& client) {
  std::map<u64, Seen> out;
  const u32 number = store.cluster.findClient(client);
  for (u32 index = 1; index < store.table.end(); ++index) {
    if (!store.table.live(index) || store.table[index].extra == 0 || !store.table.extras[store.table[index].extra].hasChecksum) continue;
    store.table.eachReplica(index, [&](const Replica& replica) {
      const Segment* segment = store.cluster.segment(replica.segment);
      if (segment == nullptr || segment->gone || segment->client != number || replica.status != ReplicaStatus::complete) return;
      out[segment->base + segment->allocator.offsetOf(replica.node)] = {std::string(store.table.keyOf(index)), store.table[index].size, store.table.extras[store.table[index].extra].checksum};
    });
  }
  return out;
}

// Requires that every holder remembers what the table has, and that an empty store learns all of it from them.
inline void requireRemembered(Chance& chance, Store& store, std::map<u64, Memory>& memories, const std::unordered_map<u64, std::vector<u64>>& mounted) {
  Settings settings;
  Store empty(settings, chance());
  empty.at(1'000);
  for (auto& [client, memory] : memories) {
    const Uuid id{client, 1};
    if (store.cluster.findClient(id) == 0 || !store.cluster.client(store.cluster.findClient(id)).known) continue;
    while (memory.follow(store, id, 50, false)) {
    }
    const std::map<u64, Seen> held = heldBy(store, id);
    REQUIRE(memory.now == held && memory.earlier.empty());
    std::vector<SegmentSpec> specs;
    for (const u64 number : mounted.at(client))
      if (const Segment* segment = store.cluster.findSegment({number, 77})) specs.push_back(segmentOf(number, client, segment->size));
    bool wanted = false;
    REQUIRE(empty.restores.begin(id, 7, specs, wanted) == 0 && wanted);
    for (const auto& [address, seen] : memory.now) {
      Restored said;
      said.address = address;
      said.sizeBytes = seen.size;
      said.checksum = seen.checksum;
      said.key = seen.key;
      said.asOf = 1;
      const i32 outcome = empty.restores.restore(id, said);
      // The owner may have two segments with a replica each.
      REQUIRE(outcome == 0 || outcome == code::replicaExists);
      REQUIRE(empty.objects.exist(0, seen.key, false) == 1);
    }
    empty.holders.endRestore(id);
  }
  requireDisjoint(empty);
}

}  // namespace svc
