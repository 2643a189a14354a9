// Random operations are compared with a small model, and the state with one that is rebuilt from the records alone.
#include <map>
#include <unordered_map>

#include "report/report.h"
#include "store.h"
#include "check.h"
#include "remembered.h"

namespace svc {

namespace {

// A segment that was unmounted with a grace period.
struct Leaving {
  u64 client, segment, endMs;
};

// The store looks this often for grace periods that ended.
constexpr u64 watchMs = 200;

// Everything that a reader could see of every object, to compare two stores.
std::map<std::string, std::string> seen(Store& store) {
  std::map<std::string, std::string> out;
  for (u32 index = 1; index < store.table.end(); ++index) {
    if (!store.table.live(index)) continue;
    const Object& object = store.table[index];
    std::map<u64, int> places;
    store.table.eachReplica(index, [&](const Replica& replica) {
      const Segment* segment = store.cluster.segment(replica.segment);
      if (segment != nullptr && !segment->gone) places[segment->base + segment->allocator.offsetOf(replica.node)] = static_cast<int>(replica.status);
    });
    if (places.empty()) continue;
    std::string text = std::to_string(object.size) + "/" + std::to_string(object.flags);
    for (const auto& [address, status] : places) text += " " + std::to_string(address) + "=" + std::to_string(status);
    // An empty Extra equals none: a copy that ended leaves one.
    const Extra extra = object.extra == 0 ? Extra{} : store.table.extras[object.extra];
    text += " layout " + std::to_string(extra.fingerprint != 0) + " sum " + std::to_string(extra.hasChecksum ? extra.checksum : 0) + " task " + std::to_string(static_cast<int>(extra.task));
    out[std::string(store.table.keyOf(index))] = text;
  }
  return out;
}

ReplicaType typeOf(u64 chance) { return chance == 0 ? ReplicaType::disk : chance == 1 ? ReplicaType::memory : ReplicaType::all; }

// Begins, ends and evicts a file of the shared folder, and sweeps files without an object.
void touchFile(Chance& chance, Store& store, const Uuid& id, const std::string& key) {
  u64 file = 0;
  const u32 index = store.table.find(0, key, store.table.hashOf(0, key));
  const Object* object = index == 0 ? nullptr : &store.table[index];
  const u64 size = object == nullptr ? 1 : object->size;
  const u64 sum = object == nullptr || object->extra == 0 ? 0 : store.table.extras[object->extra].checksum;
  REQUIRE(store.folder.startFile(id, 0, key, size, sum + 1, file) != 0);
  const i32 begun = store.folder.startFile(id, 0, key, size, sum, file);
  if (begun == 0) {
    u64 again = 0;
    REQUIRE(store.folder.startFile(id, 0, key, size, sum, again) == 0 && again == file);
    REQUIRE(store.folder.endFile(id, 0, key, file + 1, true) == code::replicaNotFound);
    if (below(chance, 3) != 0) REQUIRE(store.folder.endFile(id, 0, key, file, below(chance, 4) != 0) == 0);
  }
  if (below(chance, 4) == 0) store.folder.evictFile(0, key);
  if (below(chance, 4) == 0) store.folder.swept(store.folder.sweepable(50));
}

// Requires that what the folder knows of its files matches the objects' replicas.
void requireFiled(const Store& store) {
  const Segment* folder = store.folder.segment();
  if (folder == nullptr) return;
  u64 used = 0, files = 0;
  for (u32 index = 1; index < store.table.end(); ++index) {
    if (!store.table.live(index)) continue;
    bool filing = false;
    store.table.eachReplica(index, [&](const Replica& replica) {
      if (replica.segment != folder->number) return;
      const u64 file = store.nodes[replica.node].offset;
      ++files;
      used += store.table[index].size;
      filing = filing || replica.status == ReplicaStatus::processing;
      REQUIRE(folder->disk->folder->objects.at(file) == index && !folder->disk->dropped.contains(file));
    });
    REQUIRE(filing == ((store.table[index].flags & flag::filing) != 0));
  }
  REQUIRE(files == folder->disk->folder->objects.size() && files == folder->disk->files && used == folder->disk->used);
  // The capacity is unknown before the folder is opened.
  REQUIRE(used <= folder->disk->capacity || folder->disk->capacity == 0);
}

// A file's removal is published at once, even while its object's memory is still being written.
void testFileFirst() {
  Settings settings;
  settings.folder = "/shared/cluster";
  Store store(settings, 1);
  store.at(1'000);
  store.folder.open();
  const Uuid id{1, 1};
  u32 index = 0;
  REQUIRE(store.holders.mount(segmentOf(2'000'000, 1, 1'000), id) == 0);
  REQUIRE(store.puts.start(store.holders.clientOf(id), 0, "k", 100, PutPolicy{}, "", index) == 0);
  REQUIRE(store.puts.end(id, 0, "k", std::nullopt, ReplicaType::disk) == 0 && (store.table[index].flags & flag::announcedDisk) != 0);
  REQUIRE(store.folder.evictFile(0, "k") == 0 && (store.table[index].flags & flag::announcedDisk) == 0);
}

}  // namespace

void testStore(Chance& chance, u32 rounds) {
  testFileFirst();
  for (u32 round = 0; round < rounds * 3; ++round) {
    Settings settings;
    settings.leaseMs = 100;
    settings.discardMs = 500;
    settings.releaseMs = 2'000;
    settings.clientTtlMs = 3'000;
    settings.suspectMs = 1'000;
    settings.strategy = static_cast<Strategy>(below(chance, 3));
    if (below(chance, 2) == 0) settings.folder = "/shared/cluster";
    Store store(settings, chance());
    std::string all;
    u64 now = 1'000, segments = 0;
    store.journal.epochMs = 1'000'000;
    store.at(now);
    store.folder.open();
    if (store.folder.segment() != nullptr) store.folder.segment()->disk->capacity = 100'000;
    const auto clientID = [](u64 number) { return Uuid{number, 1}; };
    std::unordered_map<u64, std::vector<u64>> mounted, extents;
    std::vector<u64> leased;
    std::vector<Leaving> leaving;
    std::map<u64, Memory> memories;
    for (u64 client = 1; client <= 4; ++client) mounted[client];
    const auto keyOf = [&] { return "key-" + std::to_string(below(chance, 300)); };
    for (u32 step = 0; step < 20'000; ++step) {
      const u64 client = 1 + below(chance, 4);
      const std::string key = keyOf();
      const Uuid id = clientID(client);
      PutPolicy policy;
      policy.replicas = 1 + below(chance, 3);
      policy.hardPin = below(chance, 20) == 0;
      policy.softPin = static_cast<u8>(below(chance, 3));
      u32 index = 0;
      const std::string group = below(chance, 4) == 0 ? "group-" + std::to_string(below(chance, 5)) : "";
      switch (below(chance, 20)) {
        case 0:
          if (mounted[client].size() < 3) {
            if (store.holders.mount(segmentOf(++segments, client, 20'000 + below(chance, 50'000)), id) == 0) mounted[client].push_back(segments);
          }
          break;
        case 1:
          if (!mounted[client].empty() && below(chance, 10) == 0) {
            const u64 graceMs = below(chance, 2) * 200;
            store.holders.unmount({mounted[client].back(), 77}, id, graceMs);
            if (graceMs > 0) leaving.push_back({client, mounted[client].back(), now + graceMs});
            mounted[client].pop_back();
          }
          break;
        case 2: case 3: case 4:
          if (store.puts.start(store.holders.clientOf(id), 0, key, 1 + below(chance, 2'000), policy, group, index) == 0) REQUIRE(store.table.live(index));
          break;
        case 5: case 6:
          store.puts.end(id, 0, key, below(chance, 2) == 0 ? std::optional<u64>(chance()) : std::nullopt, typeOf(below(chance, 3)));
          break;
        case 7: store.puts.revoke(id, 0, key, typeOf(below(chance, 3))); break;
        case 8: store.puts.startUpsert(store.holders.clientOf(id), 0, key, 1 + below(chance, 2'000), policy, "", index); break;
        case 9: store.objects.read(0, key, true, index); break;
        case 10: store.puts.remove(0, key, below(chance, 2) == 0); break;
        case 11:
        case 12: {
          if (mounted[client].empty()) break;
          const std::string source(segmentOf(mounted[client].front(), client, 1).name), target(segmentOf(1 + below(chance, segments), 0, 1).name);
          const std::string_view targets[] = {target};
          store.copies.start(id, 0, key, source, targets, below(chance, 2) ? TaskKind::copy : TaskKind::move, index);
          break;
        }
        case 13: store.copies.end(id, 0, key, below(chance, 2) ? TaskKind::copy : TaskKind::move, below(chance, 3) == 0); break;
        case 14:
          if (below(chance, 4) == 0) store.puts.clear(id, 0, key, "");
          else touchFile(chance, store, id, key);
          break;
        case 15:
          if (store.extents.lease(store.holders.clientOf(id), 0, 1 + below(chance, 2'000), 1 + static_cast<u32>(below(chance, 4)), policy, leased) == 0)
            for (const u64 extent : leased) extents[client].push_back(extent);
          break;
        case 16: case 17: case 18: {
          std::vector<u64>& own = extents[client];
          if (own.empty()) break;
          const std::size_t at = below(chance, own.size());
          const u64 extent = own[at];
          own[at] = own.back();
          // An extent that is kept here is used twice, and is not found the second time.
          if (below(chance, 5) != 0) own.pop_back();
          if (below(chance, 4) == 0) {
            store.extents.giveBack(id, extent, below(chance, 2) == 0);
            break;
          }
          const Ended ended{below(chance, 2) == 0 ? std::optional<u64>(chance()) : std::nullopt, below(chance, 3) == 0 ? "layout-1" : ""};
          const i32 outcome = store.extents.commit(id, 0, key, extent, ended, policy, group, below(chance, 3) == 0);
          if (outcome != 0) break;
          REQUIRE(store.extents.commit(id, 0, key, extent, ended, policy, group, true) == code::invalidWrite);
          REQUIRE(store.objects.read(0, key, false, index, "another layout") == code::notFound);
          break;
        }
        default: {
          now += below(chance, 100);
          store.at(now);
          for (u64 each = 1; each <= 4; ++each) {
            i32 status = 0;
            if (each != 4 || below(chance, 30) == 0) store.holders.ping(clientID(each), status);
          }
          while (store.tend(500)) {
          }
          memories[client].follow(store, id, 1 + static_cast<u32>(below(chance, 200)), below(chance, 50) == 0);
        }
      }
      all += store.journal.pending;
      store.journal.clear();
      if (step % 2'000 == 0) {
        requireDisjoint(store);
        requireFiled(store);
      }
    }
    requireDisjoint(store);
    while (store.tend(500)) {
    }
    all += store.journal.pending;
    store.journal.clear();
    // Objects lie on a segment until its grace period ends, and its holder still names it.
    for (const Leaving& each : leaving) {
      REQUIRE(now < each.endMs + watchMs || store.cluster.findSegment({each.segment, 77}) == nullptr);
      mounted[each.client].push_back(each.segment);
    }
    requireRemembered(chance, store, memories, mounted);
    // The records alone give the same state, and so does a snapshot that is taken here.
    for (int way = 0; way < 2; ++way) {
      Store again(settings, chance());
      again.journal.epochMs = store.journal.epochMs;
      again.at(now);
      std::string records = all;
      if (way == 1) {
        Journal snapshot;
        snapshot.epochMs = store.journal.epochMs;
        store.replay.snapshotHead(snapshot);
        for (u32 cursor = 1; cursor != 0;) cursor = store.replay.snapshotSome(snapshot, cursor, 100);
        records = snapshot.pending;
      }
      RecordReader reader(records.data(), records.size());
      while (reader.more()) REQUIRE(again.replay.apply(reader));
      again.replay.end();
      REQUIRE(seen(again) == seen(store));
      requireDisjoint(again);
      requireFiled(again);
      REQUIRE(folderJson(store).empty() || again.folder.segment()->disk->dropped == store.folder.segment()->disk->dropped);
      REQUIRE(segmentsJson(again).size() > 0);
    }
  }
}

void testEviction(Chance& chance) {
  Settings settings;
  settings.leaseMs = 1'000;
  Store store(settings, chance());
  store.at(1'000);
  const Uuid id{1, 1};
  constexpr u64 size = 100, count = 20'000;
  REQUIRE(store.holders.mount(segmentOf(1'000'000, 1, size * count), id) == 0);
  const u32 client = store.holders.clientOf(id);
  u32 index = 0;
  const auto put = [&](const std::string& key, const PutPolicy& policy, const std::string& group) {
    if (store.puts.start(client, 0, key, size, policy, group, index) != 0) return false;
    return store.puts.end(id, 0, key, std::nullopt) == 0;
  };
  PutPolicy plain, hard, soft;
  hard.hardPin = true;
  soft.softPin = 1;
  for (u64 i = 0; i < 500; ++i) REQUIRE(put("hard-" + std::to_string(i), hard, "") && put("soft-" + std::to_string(i), soft, ""));
  for (u64 i = 0; i < 1'000; ++i) REQUIRE(put("grouped-" + std::to_string(i), plain, "group-" + std::to_string(i / 10)));
  u64 stored = 0;
  for (u64 i = 0; i < 100'000; ++i) {
    store.at(1'000 + i * 2);
    i32 status = 0;
    store.holders.ping(id, status);
    if (i % 50 == 0) REQUIRE(store.objects.read(0, "grouped-5", true, index) == 0);
    stored += put("key-" + std::to_string(i), plain, "");
    while (store.tend(2'048)) {
    }
    store.journal.clear();
  }
  REQUIRE(store.counters.evictedObjects > 50'000 && stored > 99'000);
  // Pinned objects stay; a group that is read stays complete, and other groups were evicted completely.
  for (u64 i = 0; i < 500; ++i) REQUIRE(store.objects.exist(0, "hard-" + std::to_string(i), false) == 1 && store.objects.exist(0, "soft-" + std::to_string(i), false) == 1);
  for (u64 group = 0; group < 100; ++group) {
    int members = 0;
    for (u64 i = 0; i < 10; ++i) members += store.objects.exist(0, "grouped-" + std::to_string(group * 10 + i), false);
    REQUIRE(members == 0 || members == 10);
    if (group == 0) REQUIRE(members == 10);
  }
}

}  // namespace svc
