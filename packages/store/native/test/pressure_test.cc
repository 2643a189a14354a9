// A full store: puts beyond its capacity evict at once, and leases end on their exact millisecond.
#include "check.h"
#include "store.h"

namespace svc {

namespace {

constexpr u64 size = 1'000, count = 64;

struct Full {
  Store store;
  Uuid id{1, 1};
  u32 index = 0;

  Full(const Settings& settings, u64 seed) : store(settings, seed) {
    store.at(1'000);
    SegmentSpec spec;
    spec.id = {1, 1};
    spec.name = spec.endpoint = "host:1";
    spec.sizeBytes = size * count;
    REQUIRE(store.holders.mount(spec, id) == 0);
  }
  i32 put(const std::string& key, u64 bytes = size) {
    const i32 begun = store.puts.start(store.holders.clientOf(id), 0, key, bytes, PutPolicy{}, "", index);
    return begun != 0 ? begun : store.puts.end(id, 0, key, std::nullopt);
  }
};

void testBurst(Chance& chance) {
  Full full(Settings(), chance());
  // No background work, which would evict others, runs in between.
  for (u32 i = 0; i < count * 20; ++i) REQUIRE(full.put("key-" + std::to_string(i)) == 0);
  REQUIRE(full.put("larger", size * 10) == 0);
  REQUIRE(full.put("as large as all", size * count) == 0);
  REQUIRE(full.put("another") == 0);
  // An upsert that grows may evict its own old bytes.
  for (u32 i = 0; i < 100; ++i) {
    REQUIRE(full.store.puts.startUpsert(full.store.holders.clientOf(full.id), 0, "grows", size * (1 + i % 50), PutPolicy{}, "", full.index) == 0);
    REQUIRE(full.store.puts.end(full.id, 0, "grows", std::nullopt) == 0);
  }
  const u64 evicted = full.store.counters.evictedObjects;
  REQUIRE(full.put("larger than all", size * count + 1) == code::noHandle && full.store.counters.evictedObjects == evicted);
}

void testLeasedStay(Chance& chance) {
  Settings settings;
  settings.leaseMs = 500;
  Full full(settings, chance());
  for (u32 i = 0; i < count; ++i) {
    REQUIRE(full.put("key-" + std::to_string(i)) == 0);
    REQUIRE(full.store.objects.exist(0, "key-" + std::to_string(i), true) == 1);
  }
  REQUIRE(full.put("more") == code::noHandle);
  for (u32 i = 0; i < count; ++i) REQUIRE(full.store.objects.exist(0, "key-" + std::to_string(i), false) == 1);
  full.store.at(1'000 + 500);
  REQUIRE(full.put("more") == 0);
}

void testLeaseEnds(Chance& chance) {
  for (u64 leaseMs = 1; leaseMs <= 50; ++leaseMs) {
    Settings settings;
    settings.leaseMs = leaseMs;
    Full full(settings, chance());
    for (u64 at = 2'000; at < 2'000 + 3 * tickMs; ++at) {
      full.store.at(at);
      REQUIRE(full.put("key") == 0 && full.store.objects.exist(0, "key", true) == 1);
      full.store.at(at + leaseMs - 1);
      REQUIRE(full.store.puts.remove(0, "key", false) == code::hasLease);
      full.store.at(at + leaseMs);
      REQUIRE(full.store.puts.remove(0, "key", false) == 0);
      full.store.at(at);
    }
  }
}

}  // namespace

void testPressure(Chance& chance) {
  testBurst(chance);
  testLeasedStay(chance);
  testLeaseEnds(chance);
}

}  // namespace svc
