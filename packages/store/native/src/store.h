// The master's rules: objects, their replicas and leases, the clients that hold memory, and everything that happens to them.
#pragma once
#include <span>

#include "store_state.h"

namespace svc {

enum class ReplicaType : i32 { memory = 0, disk = 1, localDisk = 2, nof = 3, all = 4 };  // numbered as on the wire

class Store : public StoreState {
 public:
  static constexpr u16 noTenant = 0xffff;
  static constexpr u32 mostReplicas = 16, mostExtents = 256, longestFingerprint = 1024, mostFingerprints = 65'535;

  Store(const Settings& settings, u64 seed);

  // Sets the clock: milliseconds since some moment in the past, never 0.
  void at(u64 nowMs) { nowMs_ = nowMs; }
  u64 nowMs() const { return nowMs_; }

  // Returns 0 or an error code; `index` is the object, if there is one.
  i32 putStart(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, u32& index);
  i32 upsertStart(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, u32& index);
  // A file in the shared folder is ended by a call of its own, with type `disk`; any other type concerns the other replicas.
  i32 putEnd(const Uuid& client, u16 tenant, std::string_view key, std::optional<u64> checksum, ReplicaType type = ReplicaType::all);
  i32 putRevoke(const Uuid& client, u16 tenant, std::string_view key, ReplicaType type = ReplicaType::all);
  // Returns 1 if the object exists, else 0.
  i32 exist(u16 tenant, std::string_view key, bool lease);
  // With a fingerprint, an object that was stored with another one is not found.
  i32 read(u16 tenant, std::string_view key, bool lease, u32& index, std::string_view fingerprint = {});
  Gone whyMissing(u16 tenant, std::string_view key, std::string_view fingerprint, u64& unixMs);
  i32 remove(u16 tenant, std::string_view key, bool force);
  // Leases ranges for at most `count` objects of that size, each an extent with an id; the two calls below end an extent.
  i32 leaseExtents(u32 client, u16 tenant, u64 size, u32 count, const PutPolicy& policy, std::vector<u64>& out);
  i32 returnExtent(const Uuid& client, u64 id, bool failed);
  i32 commitPut(const Uuid& client, u16 tenant, std::string_view key, u64 extent, const Ended& ended, const PutPolicy& policy, std::string_view group, bool replace);
  template <typename Each>
  void eachRange(u64 extent, Each each) const {
    for (const Placed& range : extents_.at(extent).ranges) each(*cluster.segment(range.segment), range.node);
  }
  // A copy or a move, run by any client.
  i32 copyStart(const Uuid& client, u16 tenant, std::string_view key, std::string_view source, std::span<const std::string_view> targets, TaskKind kind, u32& index);
  i32 copyEnd(const Uuid& client, u16 tenant, std::string_view key, TaskKind kind, bool revoke);
  // Returns whether the client that runs an object's copy or move was lost.
  bool abandoned(const Extra& extra) const { return nowMs_ - cluster.client(extra.taskClient).seenMs > settings.clientTtlMs; }
  // Ends an object's copy or move; its client may still be writing.
  void endTask(u32 index);
  i32 clear(const Uuid& client, u16 tenant, std::string_view key, std::string_view segment);

  // Clients that hold memory (store_cluster.cc).
  u32 clientOf(const Uuid& id);
  i32 ping(const Uuid& id, i32& status);
  i32 mount(const SegmentSpec& spec, const Uuid& client);
  i32 remount(std::span<const SegmentSpec> specs, const Uuid& client);
  // Returns whether mounting these again changes nothing in the log: they are all the memory that the client is known to hold.
  bool holds(std::span<const SegmentSpec> specs, const Uuid& client) const;
  i32 unmount(const Uuid& id, const Uuid& client, u64 graceMs);
  i32 setState(u32 segment, SegmentState state);
  // Records the result of a probe of a segment's endpoint; false when the segment is gone.
  bool probed(u32 segment, bool reached);
  void markSilent(u32 client);

  // Clients' disks (store_disks.cc, store_offload.cc, store_promote.cc).
  i32 mountDisk(const DiskSpec& spec, const Uuid& client);
  i32 unmountDisks(const Uuid& client);
  // Unmounts one of them. `empty`: only a disk without objects (else notReady), so that none is stranded.
  i32 unmountDisk(const Uuid& client, const Uuid& disk, bool empty);
  // Cold devices (store_cold.cc): returns how many objects in its owner's memory were queued for it; `ended`: the whole table was scanned.
  u32 queueCold(Segment& disk, u16 tenant, u32 most, u32 records, bool& ended);
  i32 fillCold(const Uuid& client, const Uuid& disk, Disk::Fills fills, std::string_view tenant);
  i32 releaseCold(const Uuid& disk, u16 tenant, std::string_view key, u64 file);
  // Returns the cold device that an object is queued for or being written to.
  const Segment* coldFor(u32 index) const;
  void wipeDisks();
  // Null if the client has no such disk here, or has not mounted it again since our restart.
  Segment* diskOf(const Uuid& client, const Uuid& id, bool awaited = false);
  // Orders for its owner: objects to store, numbers of files to remove, objects to bring back to memory.
  std::vector<Disk::Offload> takeOffloads(Segment& disk, u32 most);
  std::vector<u64> takeDropped(Segment& disk, u32 most);
  std::vector<u32> takePromotions(Segment& disk, u32 most);
  i32 keepFile(Segment& disk, u16 tenant, const StoredFile& file);
  bool isIn(u32 index, const StoredFile& file) const;
  i32 failOffload(Segment& disk, u16 tenant, std::string_view key, u32 task);
  i32 dropFile(Segment& disk, u16 tenant, std::string_view key, u64 file, Gone why);
  i32 keepMooncakeFile(Segment& disk, u16 tenant, std::string_view key, u64 size);
  i32 dropMooncakeFile(const Uuid& client, u16 tenant, std::string_view key);
  i32 promoteStart(const Uuid& client, u16 tenant, std::string_view key, u64 size, std::span<const std::string_view> preferred, u32& index);
  // A reader found wrong bytes in that replica, so its owner is asked to check it.
  i32 reportWrongBytes(u16 tenant, std::string_view key, u64 replica);

  // The shared folder (store_folder.cc). `openFolder` opens that of the settings, after the log was read.
  void openFolder();
  Segment* folder() { return cluster.segment(folder_); }
  const Segment* folder() const { return cluster.segment(folder_); }
  // Returns a file's path within the folder, which depends on the folder's id and the file's number alone.
  std::string nameOf(const Segment& folder, u64 file) const;
  std::string pathOf(const Segment& folder, u64 file) const { return folder.disk->folder->path + "/" + nameOf(folder, file); }
  // Called by the object's writer: assigns a file for exactly these bytes (a repeated call gives the same one), and takes its outcome.
  i32 startFile(const Uuid& client, u16 tenant, std::string_view key, u64 size, u64 checksum, u64& file);
  i32 endFile(const Uuid& client, u16 tenant, std::string_view key, u64 file, bool whole);
  // A client removed the file to free space.
  i32 evictFile(u16 tenant, std::string_view key);
  // `sweepable`: files without an object and without a possible late writer; `swept`: those of them that were removed.
  std::vector<u64> sweepable(u32 most) const;
  void swept(const std::vector<u64>& files);

  // Clients that remember what is in their memory (store_holdings.cc): `lineage` identifies one log and its copies.
  u64 lineage() const { return lineage_; }
  void nameLineage();
  i32 takeChanges(const Uuid& client, bool fromStart, u32 most, Changes& out);
  // Returns whether another log than this one recorded a holder's objects.
  bool wantsRestore(u64 lineage) const { return lineage != 0 && lineage != lineage_; }
  // Mounts a holder's segments. If it remembers another lineage (`wanted`), its memory is kept free until it has reported its objects.
  i32 beginRestore(const Uuid& client, u64 lineage, std::span<const SegmentSpec> specs, bool& wanted);
  i32 restore(const Uuid& client, const Restored& object);
  i32 endRestore(const Uuid& client);
  void hit(u32 index);
  bool inMemory(u32 index) const;
  bool inMemory(const Replica& replica) const;
  bool onNof(const Replica& replica) const;
  const Replica* fileOn(u32 index, const Segment& disk) const;
  // Returns a replica's id on the wire; for one of our files it contains the file's number.
  u64 replicaID(const Replica& replica) const;
  bool onDisk(const Replica& replica) const;
  u16 tenantOf(std::string_view name) const;
  u16 addTenant(std::string_view name);
  void setQuota(u16 tenant, bool registered, u64 bytes);
  // Returns a tenant's effective quota: less than its configured one if all of them together exceed the capacity.
  u64 quotaOf(u16 tenant) const;

  void keepNote(u8 kind, const Uuid& id, std::string text);
  void dropNote(const Uuid& id);
  const std::unordered_map<Uuid, Note, UuidHash>& notes() const { return notes_; }

  bool readable(const Replica& replica) const;
  // Visits every replica of an object, readable or not.
  template <typename Each>
  void eachReplica(u32 index, Each each) const {
    for (const Replica* at = &table[index].first;; at = &table.more[at->next]) {
      if (at->status != ReplicaStatus::none) each(*at);
      if (at->next == 0) return;
    }
  }

  // Runs a slice of background work; true while there is more to do at once.
  bool tend(u32 budget);
  // Applies a record of the log or of a snapshot; false if it is malformed.
  bool replay(RecordReader& from);
  void forgetObjects();
  // Ends a replay: rebuilds the allocators, and gives every holder a client_ttl to come back. `takenOver`: the records came from a leader
  // until just now, so holders still have their memory.
  void recovered(bool takenOver = false);
  // Between replicated records: drops objects whose only replicas were on lost clients, as the leader did. True while there is more.
  bool tendReplayed();
  // Writes the head of a snapshot, then its objects from a cursor on; returns the next cursor, 0 at the end.
  void snapshotHead(Journal& to) const;
  u32 snapshotSome(Journal& to, u32 cursor, u32 records = 2'000) const;

  // Begins a dump of every readable key as batches of KV events, whose numbers end right before the next batch's or a last, empty one's.
  Dump beginDump();
  // Makes the next batch's payload; false once all were made.
  bool nextOf(Dump& dump, std::string& payload);
  u64 unixMs() const { return journal.epochMs + nowMs_; }

  u64 usedBytes(Tier tier = Tier::memory) const { return usage_[static_cast<u32>(tier)].used; }
  u64 capacityBytes(Tier tier = Tier::memory) const { return usage_[static_cast<u32>(tier)].capacity; }
  u32 unfinished() const { return unfinished_; }
  // True if work is pending that the next loop iteration should not wait long for.
  bool wantsSoon() const { return usage_[0].noSpace || usage_[1].noSpace || pass_ != Pass::none; }
  bool softPinned(const Object& object) const;
  std::string_view groupName(const Object& object) const;
  // Returns the layout of the bytes, as the object's writer named it; empty for none.
  std::string_view fingerprintOf(const Object& object) const;

 private:
  Tick tick() const { return tickOf(nowMs_); }
  bool leased(const Object& object) const;
  void grant(Object& object);
  bool mayEvict(const Object& object, bool pinned) const;
  // Returns whether its eviction frees a range that can be allocated again.
  bool frees(u32 index) const;
  TierUsage& usageOf(Tier tier) { return usage_[static_cast<u32>(tier)]; }
  // Returns whether it has a replica outside of the tier that it may leave.
  bool anyElse(u32 index, Tier tier) const;
  bool anyNof(u32 index) const;
  // Returns whether a complete replica lies in memory, or on what KV events call a disk.
  bool lies(u32 index, bool disk) const;
  bool anyCold(u32 index) const;
  bool offloads() const { return settings.offload || coldFills_; }
  void queueOffload(u32 index, bool evicting);
  Segment* diskFor(u32 index, bool evicting);
  // Returns whether it lies on a client's own disk.
  bool anyOwned(u32 index) const;
  bool onShared(const Replica& replica) const;
  // Returns whether any replica other than its file is being written.
  bool writing(u32 index) const;
  Replica* sharedOf(u32 index);
  void addShared(u32 index);
  bool evictShared(Segment& folder, u64 size, u32 spared);
  i32 endShared(u32 index, bool whole);
  void dropShared(u32 index, Gone why);
  // Drops unfinished replicas of these kinds; returns whether the object was erased, as no other was left.
  bool dropUnfinished(u32 index, ReplicaType type, u64 coolMs, Gone why);
  // Returns whether a replica outside of the shared folder is complete.
  bool anyEnded(u32 index) const;
  // Returns whether an end of that type concerns the replica.
  bool isOf(const Replica& replica, ReplicaType type) const;
  // Gives up an unfinished put; returns whether the object was erased.
  bool discard(u32 index);
  bool replayFolder(RecordReader& from);
  void setFiling(Object& object, bool filing);
  // Returns whether it waits for a disk now, and must not be evicted otherwise.
  bool leaveToDisk(u32 index);
  void evictOne(u32 index, Tier tier);
  void dropTier(u32 index, Tier tier);
  // Cancels a running offload, since a writer is about to change what the disk's owner reads.
  void cancelOffload(u32 index);
  bool busy(const Object& object) const;
  bool endOffload(Segment& disk, u32 index, u32 task);
  void addFile(Segment& disk, u32 index, u64 file);
  void fillOffloads(u32 budget);
  void forgetOrders(Segment& disk);
  bool evictable(u32 index, bool pinned) const;
  Extra& extraOf(u32 index);
  u32 groupOf(u16 tenant, std::string_view name);
  void joinGroup(u32 index, u16 tenant, std::string_view name);
  void leaveGroup(u32 index);
  void log(u32 index) { journal.object(table, index, groupName(table[index]), fingerprintOf(table[index]), cluster); }

  u32 place(u64 size, u64 count, const PutPolicy& policy, Tier tier, Placed* out);
  bool placeIn(u32 segment, u64 size, Placed* out, u32& placed);
  void setReplicas(u32 index, const Placed* placed, u32 count, ReplicaStatus status);
  void addReplica(u32 index, const Placed& placed, ReplicaStatus status);
  // Removes the replicas that `gone` selects; their ranges cool down for `coolMs`. Returns whether any are left.
  bool dropReplicas(u32 index, const std::function<bool(const Replica&)>& gone, u64 coolMs);
  void release(const Replica& replica, u16 tenant, u64 size, u64 coolMs);
  void free(u32 segment, u32 node);
  // Frees a range that the log records as cooling down.
  void freeCooling(u32 segment, u32 node);
  // Erases the object, with a log record unless the log implies it. `why` is the reason that a later miss reports.
  void erase(u32 index, u64 coolMs, bool logged = true, Gone why = Gone::unknown);
  // Drops replicas on lost segments; 0 when the object had no others.
  u32 pruned(u32 index);
  u32 find(u16 tenant, std::string_view key);
  i32 create(u32 client, u16 tenant, std::string_view key, u64 size, const PutPolicy& policy, std::string_view group, bool files, u32& index);
  i32 checkPolicy(u16 tenant, std::string_view key, u64 size, const PutPolicy& policy) const;
  // Removes an unreadable or abandoned object in the way of a new one; ok, or exists.
  i32 makeWay(u16 tenant, std::string_view key);
  // Checks that a tenant may have `more` bytes; its own objects are evicted for them first, except `spared`.
  i32 overQuota(u16 tenant, u64 more, std::string_view key = {}, u32 spared = 0);
  void evictOf(u16 tenant, u64 bytes, bool pinned, u32 spared);
  void assignQuota(u16 tenant, bool registered, u64 bytes);
  // Reduces the number of replicas to what the tenant's quota allows.
  u32 withinQuota(u16 tenant, u64 size, const Placed* placed, u32 count);
  void evictWhole(u32 index, Tier tier);
  bool groupMayGo(const Object& object, bool pinned, u32 spared) const;
  i32 refuseForSpace();
  bool evictNow(u64 size, Tier tier);  // for a put that found no space; returns whether memory was freed
  u32 placeEvicting(u64 size, const PutPolicy& policy, Tier tier, Placed* out, bool optional = false);  // like `place`, but evicts; an `optional` replica is worth no eviction
  i32 checkMount(const SegmentSpec& spec, u32 client) const;
  // Drops a damaged replica of a NOF segment, which has no owner that could check its bytes.
  bool dropDamaged(u32 index, u64 replica);
  // Gives a segment whose holder is silent to another process that mounts it by the same id.
  bool takeOver(Segment& segment, const SegmentSpec& spec, u32 client);
  void endExtent(u64 id, u64 coolMs);
  Extent forgetExtent(u64 id);
  void endOldExtents(u32 most);
  void note(u32 index, const Ended& ended, u32 fingerprint);
  // Returns 0 for an empty text, and when there are too many.
  u32 fingerprintOf(std::string_view text);
  void setOwner(Object& object, u32 client);
  void setProcessing(Object& object, bool processing);
  bool anyStatus(u32 index, ReplicaStatus status) const;
  void suspect(u32 index);
  void suspectSegment(u32 segment);
  // Publishes what changed about a key: it became readable (or is so `again`), or it is gone.
  void announce(u32 index, bool again = false);
  void retract(u32 index);
  KvEvents::Object described(u32 index, u8 medium) const;
  void announceOn(u32 index, u8 medium, bool again);
  void notifyHolders(u32 index);
  void setAnnounced(Object& object, u8 medium, bool announced);
  void settleEvents();
  void lose(u32 client);
  void dropSegment(Segment& segment);
  void watchClients();
  void beginPass(Pass pass);
  bool visit(u32 index);
  double watermarkOf(Tier tier) const { return tier == Tier::nof ? settings.nofHighWatermark : settings.highWatermark; }
  bool mustEvict(Tier tier);
  void beginEviction(Tier tier);
  void endPass();
  void replayObject(RecordReader& from);
  bool replayDisk(RecordReader& from);
  bool replayErased(RecordReader& from, bool says);
  void replayPins(RecordReader& from, u32 index, u8 what);
};

}  // namespace svc
