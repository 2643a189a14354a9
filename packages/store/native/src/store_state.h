// The store's data: its parts, and the progress of its background work. The rules are in store.h.
#pragma once
#include <deque>
#include <functional>

#include "holders/holdings.h"
#include "objects/ranges.h"
#include "objects/recent.h"
#include "base/settings.h"
#include "base/sketch.h"
#include "objects/put_policy.h"

namespace svc {

class StoreState {
 public:
  Settings settings;
  Pool<Node> nodes;
  Table table;
  Cluster cluster;
  Journal journal;
  KvEvents events;
  Counters counters;
  std::vector<Tenant> tenants;
  // Called with the store's lock held when a holder may have failed, so that its segment is probed.
  std::function<void(u32 segment)> onSuspect;
  std::function<void(u32 client, const char* what)> onClient;

 protected:
  enum class Pass : u8 { none, dead, discard, evict, evictPinned };

  StoreState(const Settings& settings, u64 seed)
      : settings(settings), nodes(u32{1} << 29), table(seed), random_(seed | 1), lastExtent_(seed * 0x9E3779B97F4A7C15ull), lastOffload_(static_cast<u32>(lastExtent_ >> 32)) {}

  u64 nowMs_ = tickMs;
  // One tier's usage, and the state of its eviction.
  struct TierUsage {
    u64 used = 0, capacity = 0, evictAtMs = 0, pausedUntilMs = 0;
    bool noSpace = false;
  };
  TierUsage usage_[tiers];
  u64 random_;
  u32 unfinished_ = 0, filing_ = 0;
  u32 folder_ = 0;
  u64 lastFile_ = 0;
  std::vector<Cooling> cooling_;  // a heap; the range that expires first is on top
  std::vector<Group> groups_;
  std::vector<u32> freeGroups_;
  std::unordered_map<std::string, u32> groupByName_;
  std::unordered_map<std::string, u16> tenantByName_;
  std::unordered_map<Uuid, Note, UuidHash> notes_;
  u64 askedBytes_ = 0;  // sum of all tenants' quotas
  std::vector<std::string> fingerprints_ = std::vector<std::string>(1);
  std::unordered_map<std::string, u32> fingerprintByName_;
  Recent recent_;
  // Ids and numbers of offloads start at a random value, so that none from before a restart is mistaken for a current one.
  std::unordered_map<u64, Extent> extents_;
  std::deque<u64> extentEnds_;  // in the order of their expiry
  u64 lastExtent_, extentBytes_ = 0;
  u32 lastOffload_;
  u64 lineage_ = 0;
  bool holdersListen_ = false;
  std::unordered_map<u32, u64> restored_;  // by object: the last record of the lost master as of which it was there; while holders restore

  Pass pass_ = Pass::none;
  u32 cursor_ = 1, left_ = 0, evictCursor_ = 1, evictQueued_ = 0;
  Tier evicting_ = Tier::memory;
  // Set by place(): at least one segment that was tried is large enough, so an eviction may help.
  bool mayFit_ = false;
  bool deadDirty_ = false, coldFills_ = false;  // `coldFills_`: some cold device takes objects unasked
  Sketch hits_;
  std::vector<u32> dying_, dead_;  // segments hidden since the pass over dead replicas began, and before it
  u64 watchAtMs_ = 0, discardAtMs_ = 0, evictTarget_ = 0, evictLeast_ = 0, evicted_ = 0;
  Tick evictUntil_ = 0;
  // During replay: ranges that cool down, by segment and offset. A record of size 0 says that only readers use the next one's range.
  std::unordered_map<std::pair<u32, u64>, CoolingRange, RangeHash> replayedCooling_;
  std::pair<u32, u64> replayedReaders_{};
  std::vector<u32> replayedSwept_;
  bool replaying_ = false;
  bool quiet_ = true;    // during replay: its events were published before
  bool forgot_ = false;  // objects were lost whose keys are unknown
};

}  // namespace svc
