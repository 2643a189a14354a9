// Objects and their replicas: lookups, leases, owners and tasks, and how replicas are added and removed.
#pragma once
#include "events/announcer.h"
#include "objects/groups.h"
#include "objects/locations.h"
#include "objects/space.h"
#include "tenants/tenants.h"

namespace svc {

// Owns the reasons why keys are gone, the fingerprints, and the counts of unfinished objects; every change of an object's replicas goes through
// it, so that space, quotas, the log and subscribers follow. The server's lock guards it.
class Objects : Part {
 public:
  static constexpr u32 longestFingerprint = 1024, mostFingerprints = 65'535;

  Objects(Common& common, const Locations& where, Groups& groups, Tenants& tenants, Space& space, Announcer& announcer)
      : Part(common), where(where), groups(groups), tenants(tenants), space(space), announcer(announcer) {}

  // Returns 0 if there is none.
  u32 find(u16 tenant, std::string_view key);
  // Finds the object that a client wrote; returns an error code for another client's.
  i32 findOwn(const Uuid& client, u16 tenant, std::string_view key, u32& index);
  // Returns a new object without replicas; 0 when the table is full. The key must not exist.
  u32 create(u32 owner, u16 tenant, std::string_view key, u64 size, u8 dataType, bool hardPin);
  // Drops replicas on lost segments; 0 when the object had no others.
  u32 pruned(u32 index);
  // Returns 1 if the object exists, else 0.
  i32 exist(u16 tenant, std::string_view key, bool lease);
  // With a fingerprint, an object that was stored with another one is not found.
  i32 read(u16 tenant, std::string_view key, bool lease, u32& index, std::string_view fingerprint = {});
  Gone whyMissing(u16 tenant, std::string_view key, std::string_view fingerprint, u64& unixMs);
  // Counts a client's lookup that found nothing, by its reason.
  void missed(u16 tenant, std::string_view key, std::string_view fingerprint = {}) {
    u64 unixMs = 0;
    ++counters.missed[static_cast<u8>(whyMissing(tenant, key, fingerprint, unixMs))];
  }

  bool leased(const Object& object) const;
  void grant(Object& object);
  bool softPinned(const Object& object) const;
  void setOwner(Object& object, u32 client);
  void setProcessing(Object& object, bool processing);
  // Records whether the object's file in the shared folder is being written.
  void setFiling(Object& object, bool filing);
  u32 unfinished() const { return unfinished_; }
  u32 filing() const { return filing_; }

  // Returns the layout of the bytes, as the object's writer named it; empty for none.
  std::string_view fingerprintOf(const Object& object) const;
  // Returns 0 for an empty text, and when there are too many.
  u32 fingerprintOf(std::string_view text);
  void describe(u32 index, const Ended& ended, u32 fingerprint);
  void log(u32 index) { journal.object(table, index, groups.nameOf(table[index]), fingerprintOf(table[index]), cluster); }

  // A copy, a move or a promotion; an offload does not count, since a writer may cancel it.
  bool busy(const Object& object) const;
  // Returns whether the client that runs an object's task was lost.
  bool abandoned(const Extra& extra) const { return nowMs() - cluster.client(extra.taskClient).seenMs > settings.clientTtlMs; }
  void beginTask(u32 index, TaskKind kind, u32 client, u32 source, u32 targets = 0);
  // Ends a task whose outcome is known.
  void leaveTask(u32 index);
  // Ends an object's copy or move; its client may still be writing.
  void endTask(u32 index);
  // Cancels a running offload, since a writer is about to change what the disk's owner reads.
  void cancelOffload(u32 index);

  void setReplicas(u32 index, const Placed* placed, u32 count, ReplicaStatus status);
  void addReplica(u32 index, const Placed& placed, ReplicaStatus status);
  // Makes the replicas complete that are being written and that `which` selects.
  template <typename Which>
  void complete(u32 index, Which which) {
    table.eachReplica(index, [&](Replica& replica) {
      if (replica.status == ReplicaStatus::processing && which(replica)) replica.status = ReplicaStatus::complete;
    });
  }
  // Removes the replicas that `gone` selects; their ranges cool down for `coolMs`. Returns whether any are left.
  bool dropReplicas(u32 index, const std::function<bool(const Replica&)>& gone, u64 coolMs);
  // Removes replicas, and the object with its last one, for the reason that a later miss reports. Returns whether the object was erased.
  bool dropOrErase(u32 index, const std::function<bool(const Replica&)>& gone, u64 coolMs, Gone why);
  // Drops unfinished replicas of these kinds; returns whether the object was erased, as no other was left.
  bool dropUnfinished(u32 index, ReplicaType type, u64 coolMs, Gone why);
  // Gives up an unfinished put; returns whether the object was erased.
  bool discard(u32 index);
  // Erases the object, with a log record unless the log implies it. `why` is the reason that a later miss reports.
  void erase(u32 index, u64 coolMs, bool logged = true, Gone why = Gone::unknown);

  // Has segments probed whose holders may have failed.
  void suspect(u32 index);
  void suspectSegment(u32 segment);

  Recent recent;
  // While holders restore, this has for each object the last record of the lost master as of which the object was there.
  std::unordered_map<u32, u64> restored;

 private:
  void release(const Replica& replica, u16 tenant, u64 size, u64 coolMs);

  const Locations& where;
  Groups& groups;
  Tenants& tenants;
  Space& space;
  Announcer& announcer;
  u32 unfinished_ = 0, filing_ = 0;
  std::vector<std::string> fingerprints_ = std::vector<std::string>(1);
  std::unordered_map<std::string, u32> fingerprintByName_;
};

}  // namespace svc
