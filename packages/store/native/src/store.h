// What the master knows: objects, their replicas and leases, who holds the memory, and every rule of their lives.
#pragma once
#include <functional>
#include <optional>
#include <span>

#include "journal.h"
#include "settings.h"

namespace svc {

// What a writer wishes for its replicas; views into the request.
struct Wish {
  u64 replicas = 1, nofReplicas = 0, dfsReplicas = 0;
  u8 softPin = 0;  // 0 keep, 1 enable, 2 disable
  std::optional<u64> softPinMs;
  bool hardPin = false, sameNode = false;
  u8 dataType = 0;
  std::string_view hostID;
  std::vector<std::string_view> preferred;
};

struct SegmentSpec {
  Uuid id;
  std::string_view name, endpoint, protocol, hostID;
  u64 base = 0, size = 0;
};

struct Tenant {
  std::string name;
  bool registered = false;
  u64 quota = 0, charged = 0;
};

struct Counters {
  u64 evictedObjects = 0, evictedBytes = 0, evictions = 0, allocationFailures = 0, discarded = 0, clientsLost = 0, replicasLost = 0;
};

class Store {
 public:
  static constexpr u16 noTenant = 0xffff;
  static constexpr u32 mostReplicas = 16;

  Store(const Settings& settings, u64 seed);

  // The clock: milliseconds since some moment before now, never 0.
  void at(u64 nowMs) { nowMs_ = nowMs; }
  u64 nowMs() const { return nowMs_; }

  // One object each; 0 or an error code. `index` is the object, where there is one.
  i32 putStart(u32 client, u16 tenant, std::string_view key, u64 size, const Wish& wish, std::string_view group, u32& index);
  i32 upsertStart(u32 client, u16 tenant, std::string_view key, u64 size, const Wish& wish, std::string_view group, u32& index);
  i32 putEnd(const Uuid& client, u16 tenant, std::string_view key, std::optional<u64> checksum);
  i32 putRevoke(const Uuid& client, u16 tenant, std::string_view key);
  // 1 there, 0 not.
  i32 exist(u16 tenant, std::string_view key, bool lease);
  i32 read(u16 tenant, std::string_view key, bool lease, u32& index);
  i32 remove(u16 tenant, std::string_view key, bool force);
  // A copy or a move, by whoever runs it.
  i32 copyStart(const Uuid& client, u16 tenant, std::string_view key, std::string_view source, std::span<const std::string_view> targets, TaskKind kind, u32& index);
  i32 copyEnd(const Uuid& client, u16 tenant, std::string_view key, TaskKind kind, bool revoke);
  i32 clear(const Uuid& client, u16 tenant, std::string_view key, std::string_view segment);

  // Holders.
  u32 clientOf(const Uuid& id);
  i32 ping(const Uuid& id, i32& status);
  i32 mount(const SegmentSpec& spec, const Uuid& client);
  i32 remount(std::span<const SegmentSpec> specs, const Uuid& client);
  i32 unmount(const Uuid& id, const Uuid& client, u64 graceMs);
  i32 setState(u32 segment, SegmentState state);
  // What our own connect to a segment's endpoint found; false when the segment is gone.
  bool probed(u32 segment, bool reached);
  u16 tenantOf(std::string_view name) const;
  u16 addTenant(std::string_view name);
  void setQuota(u16 tenant, bool registered, u64 bytes);

  bool readable(const Replica& replica) const;
  // Visits replicas that a reader may be sent to.
  template <typename Each>
  void eachReplica(u32 index, Each each) const {
    for (const Replica* at = &table[index].first;; at = &table.more[at->next]) {
      if (at->status != ReplicaStatus::none) each(*at);
      if (at->next == 0) return;
    }
  }

  // A slice of what goes on by itself; true while there is more to do at once.
  bool tend(u32 budget);
  // Applies a record of the log or of a snapshot; false when it is not one.
  bool replay(RecordReader& from);
  void forgetObjects();
  // The log was read: allocators are rebuilt, and every holder has a lifetime to come back.
  void recovered();
  // The beginning of a snapshot, then its objects from a cursor on; the cursor after the last one, 0 at the end.
  void snapshotHead(Journal& to) const;
  u32 snapshotSome(Journal& to, u32 cursor, u32 records) const;

  u64 usedBytes() const { return used_; }
  u64 capacityBytes() const { return capacity_; }
  u32 unfinished() const { return unfinished_; }
  // Something is under way that the next turn should not wait long for.
  bool wantsSoon() const { return noSpace_ || pass_ != Pass::none; }
  bool softPinned(const Object& object) const;

  Settings settings;
  Pool<Node> nodes;
  Table table;
  Cluster cluster;
  Journal journal;
  Counters counters;
  std::vector<Tenant> tenants;
  // Something seems wrong with a holder: its segment should be probed. Called with the store's lock held.
  std::function<void(u32 segment)> onSuspect;
  std::function<void(u32 client, const char* what)> onClient;

 private:
  struct Placed {
    u32 segment, node;
  };
  struct Held {
    Tick until;
    u32 segment, node;
    bool operator<(const Held& other) const { return until > other.until; }
  };
  enum class Pass : u8 { none, dead, discard, evict, evictPinned };

  Tick tick() const { return tickOf(nowMs_); }
  bool leased(const Object& object) const;
  void grant(Object& object);
  bool mayEvict(const Object& object, bool pinned) const;
  bool evictable(u32 index, bool pinned) const;
  Extra& extraOf(u32 index);
  std::string_view groupName(const Object& object) const;
  u32 groupOf(u16 tenant, std::string_view name);
  void joinGroup(u32 index, u16 tenant, std::string_view name);
  void leaveGroup(u32 index);
  void log(u32 index) { journal.object(table, index, groupName(table[index]), cluster); }

  u32 place(u64 size, u32 count, const Wish& wish, Placed* out);
  bool placeIn(u32 segment, u64 size, Placed* out, u32& placed);
  void setReplicas(u32 index, const Placed* placed, u32 count, ReplicaStatus status);
  void addReplica(u32 index, const Placed& placed, ReplicaStatus status);
  // Takes out the replicas that `gone` names; their ranges stay unused for `holdMs`. Whether any are left.
  bool dropReplicas(u32 index, const std::function<bool(const Replica&)>& gone, u64 holdMs);
  void release(const Replica& replica, u16 tenant, u64 size, u64 holdMs);
  void free(u32 segment, u32 node);
  // Erases the object; a log record goes along unless the log implies it.
  void erase(u32 index, u64 holdMs, bool logged = true);
  // Dead replicas go; 0 when that was all there was.
  u32 pruned(u32 index);
  u32 find(u16 tenant, std::string_view key);
  i32 create(u32 client, u16 tenant, std::string_view key, u64 size, const Wish& wish, std::string_view group, u32& index);
  i32 checkWish(u16 tenant, std::string_view key, u64 size, const Wish& wish) const;
  void setOwner(Object& object, u32 client);
  void setProcessing(Object& object, bool processing);
  bool anyStatus(u32 index, ReplicaStatus status) const;
  void suspect(u32 index);
  void lose(u32 client);
  void dropSegment(Segment& segment);
  void watchClients();
  void beginPass(Pass pass);
  bool visit(u32 index);
  void beginEviction();
  void endPass();
  void replayObject(RecordReader& from);
  void replayPins(RecordReader& from, u32 index, u8 what);

  u64 nowMs_ = tickMs;
  u64 used_ = 0, capacity_ = 0, random_;
  u32 unfinished_ = 0;
  std::vector<Held> held_;  // a heap, the first to end on top
  std::vector<Group> groups_;
  std::vector<u32> freeGroups_;
  std::unordered_map<std::string, u32> groupByName_;
  std::unordered_map<std::string, u16> tenantByName_;

  Pass pass_ = Pass::none;
  u32 cursor_ = 1, left_ = 0, evictCursor_ = 1;
  bool deadDirty_ = false, noSpace_ = false;
  std::vector<u32> dying_, dead_;  // segments hidden since the pass began, and before
  u64 watchAtMs_ = 0, discardAtMs_ = 0, evictAtMs_ = 0;
  u64 evictTarget_ = 0, evictLeast_ = 0, evicted_ = 0;
  Tick evictUntil_ = 0;
  // While the log is read: offsets and sizes of ranges whose nodes are not in their allocator yet.
  struct Range {
    u32 segment, node;
    u64 size;
  };
  std::vector<Range> replayedHeld_;
  bool replaying_ = false;
};

}  // namespace svc
