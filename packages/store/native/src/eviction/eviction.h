// Makes space: evicts objects in passes over the table or at once for a put, and drops what expired or lies on lost segments.
#pragma once
#include "disks/disks.h"
#include "folder/folder.h"

namespace svc {

// Owns the running pass over the table and the times of the next ones. The server's lock guards it.
class Eviction : Part {
 public:
  Eviction(Common& common, const Locations& where, Groups& groups, Tenants& tenants, Space& space, Objects& objects, Holders& holders, Disks& disks, Folder& folder)
      : Part(common), where(where), groups(groups), tenants(tenants), space(space), objects(objects), holders(holders), disks(disks), folder(folder) {}

  // Continues the running pass, or begins the one that is due; true while there is more to do at once.
  bool tend(u32 budget);
  // True if work is pending that the next loop iteration should not wait long for.
  bool wantsSoon() const { return space.usageOf(Tier::memory).noSpace || space.usageOf(Tier::nof).noSpace || pass_ != Pass::none; }
  double watermarkOf(Tier tier) const { return tier == Tier::nof ? settings.nofHighWatermark : settings.highWatermark; }
  // Places replicas like `Space::place`, but evicts for them; an `optional` replica is worth no eviction.
  u32 place(u64 size, const PutPolicy& policy, Tier tier, Placed* out, bool optional = false);
  // Checks that a tenant may have `more` bytes; its own objects are evicted for them first, except `spared`.
  i32 overQuota(u16 tenant, u64 more, std::string_view key = {}, u32 spared = 0);
  // Reduces the number of replicas to what the tenant's quota allows.
  u32 withinQuota(u16 tenant, u64 size, const Placed* placed, u32 count);

 private:
  enum class Pass : u8 { none, dead, discard, evict, evictPinned };

  bool evicts() const { return pass_ == Pass::evict || pass_ == Pass::evictPinned; }
  bool mayEvict(const Object& object, bool pinned) const;
  bool evictable(u32 index, bool pinned) const;
  // Returns whether its eviction frees a range that can be allocated again.
  bool frees(u32 index) const;
  bool groupMayGo(const Object& object, bool pinned, u32 spared) const;
  bool mustEvict(Tier tier);
  void beginEviction(Tier tier);
  void beginPass(Pass pass);
  // Returns whether something was erased.
  bool visit(u32 index);
  bool discard(u32 index);
  void evictWhole(u32 index, Tier tier);
  void evictOne(u32 index, Tier tier);
  void endPass();
  // Evicts for a put that found no space; returns whether memory was freed.
  bool evictNow(u64 size, Tier tier);
  void evictOf(u16 tenant, u64 bytes, bool pinned, u32 spared);

  const Locations& where;
  Groups& groups;
  Tenants& tenants;
  Space& space;
  Objects& objects;
  Holders& holders;
  Disks& disks;
  Folder& folder;
  Pass pass_ = Pass::none;
  u32 cursor_ = 1, left_ = 0, evictCursor_ = 1, queued_ = 0;
  Tier evicting_ = Tier::memory;
  std::vector<u32> dead_;  // segments hidden before the pass over dead replicas began
  u64 discardAtMs_ = 0, evictTarget_ = 0, evictLeast_ = 0, evicted_ = 0;
  Tick evictUntil_ = 0;
};

}  // namespace svc
