// What the store keeps: its parts, and how far what goes on by itself has come. The rules are store.h's.
#pragma once
#include <deque>
#include <functional>

#include "holdings.h"
#include "ranges.h"
#include "recent.h"
#include "settings.h"
#include "sketch.h"
#include "wishes.h"

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
  // Something seems wrong with a holder: its segment should be probed. Called with the store's lock held.
  std::function<void(u32 segment)> onSuspect;
  std::function<void(u32 client, const char* what)> onClient;

 protected:
  enum class Pass : u8 { none, dead, discard, evict, evictPinned };

  StoreState(const Settings& settings, u64 seed)
      : settings(settings), nodes(u32{1} << 29), table(seed), random_(seed | 1), lastExtent_(seed * 0x9E3779B97F4A7C15ull), lastOffload_(static_cast<u32>(lastExtent_ >> 32)) {}

  u64 nowMs_ = tickMs;
  // Of one tier: what lies there, and its eviction.
  struct Room {
    u64 used = 0, capacity = 0, evictAtMs = 0, inVainUntilMs = 0;
    bool noSpace = false;
  };
  Room rooms_[tiers];
  u64 random_;
  u32 unfinished_ = 0, filing_ = 0;
  u32 folder_ = 0;
  u64 lastFile_ = 0;
  std::vector<Held> held_;  // a heap, the first to end on top
  std::vector<Group> groups_;
  std::vector<u32> freeGroups_;
  std::unordered_map<std::string, u32> groupByName_;
  std::unordered_map<std::string, u16> tenantByName_;
  std::unordered_map<Uuid, Note, UuidHash> notes_;
  u64 askedBytes_ = 0;  // by all tenants
  std::vector<std::string> fingerprints_ = std::vector<std::string>(1);
  std::unordered_map<std::string, u32> fingerprintByName_;
  Recent recent_;
  // Ids, and numbers of offloads, go on from a random one, so that none of an earlier life of this master is taken for one of this.
  std::unordered_map<u64, Extent> extents_;
  std::deque<u64> extentEnds_;  // in the order of their ends
  u64 lastExtent_, extentBytes_ = 0;
  u32 lastOffload_;
  u64 lineage_ = 0;
  bool holdersListen_ = false;
  std::unordered_map<u32, u64> restored_;  // when each was last seen by the lost master; while holders restore

  Pass pass_ = Pass::none;
  u32 cursor_ = 1, left_ = 0, evictCursor_ = 1, evictQueued_ = 0;
  Tier evicting_ = Tier::memory;
  bool deadDirty_ = false, coldFills_ = false;  // the last: some device takes objects unasked
  Sketch hits_;
  std::vector<u32> dying_, dead_;  // segments hidden since the pass began, and before
  u64 watchAtMs_ = 0, discardAtMs_ = 0, evictTarget_ = 0, evictLeast_ = 0, evicted_ = 0;
  Tick evictUntil_ = 0;
  // While the log is read: ranges that were held back, by segment and offset; the last record may say that the next one's is for readers.
  std::unordered_map<std::pair<u32, u64>, HeldRange, RangeHash> replayedHeld_;
  std::pair<u32, u64> replayedReaders_{};
  std::vector<u32> replayedSwept_;
  bool replaying_ = false;
  bool quiet_ = true;    // the log is read: what it says was published before
  bool forgot_ = false;  // objects of which nobody can say which they were
};

}  // namespace svc
