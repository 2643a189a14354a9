// What the master knows: objects, their replicas and leases, who holds the memory, and every rule of their lives.
#pragma once
#include <span>

#include "store_state.h"

namespace svc {

enum class ReplicaType : i32 { memory = 0, disk = 1, localDisk = 2, nof = 3, all = 4 };  // as the wire numbers kinds of replicas

class Store : public StoreState {
 public:
  static constexpr u16 noTenant = 0xffff;
  static constexpr u32 mostReplicas = 16, mostExtents = 256, longestFingerprint = 1024, mostFingerprints = 65'535;

  Store(const Settings& settings, u64 seed);

  // Milliseconds since some moment before now, never 0.
  void at(u64 nowMs) { nowMs_ = nowMs; }
  u64 nowMs() const { return nowMs_; }

  // 0 or an error code; `index` is the object, where there is one.
  i32 putStart(u32 client, u16 tenant, std::string_view key, u64 size, const Wish& wish, std::string_view group, u32& index);
  i32 upsertStart(u32 client, u16 tenant, std::string_view key, u64 size, const Wish& wish, std::string_view group, u32& index);
  // A file in the shared folder ends by a call of its own, of type `disk`; any other type is about the rest.
  i32 putEnd(const Uuid& client, u16 tenant, std::string_view key, std::optional<u64> checksum, ReplicaType type = ReplicaType::all);
  i32 putRevoke(const Uuid& client, u16 tenant, std::string_view key, ReplicaType type = ReplicaType::all);
  // 1 there, 0 not.
  i32 exist(u16 tenant, std::string_view key, bool lease);
  // With a fingerprint, an object that was stored with another one is not found.
  i32 read(u16 tenant, std::string_view key, bool lease, u32& index, std::string_view fingerprint = {});
  Gone whyMissing(u16 tenant, std::string_view key, std::string_view fingerprint, u64& unixMs);
  i32 remove(u16 tenant, std::string_view key, bool force);
  // Ranges for `count` objects of that size at most, each an extent by its id; and what becomes of one.
  i32 leaseExtents(u32 client, u16 tenant, u64 size, u32 count, const Wish& wish, std::vector<u64>& out);
  i32 returnExtent(const Uuid& client, u64 id, bool failed);
  i32 commitPut(const Uuid& client, u16 tenant, std::string_view key, u64 extent, const Ended& ended, const Wish& wish, std::string_view group, bool replace);
  template <typename Each>
  void eachRange(u64 extent, Each each) const {
    for (const Placed& range : extents_.at(extent).ranges) each(*cluster.segment(range.segment), range.node);
  }
  // A copy or a move, by whoever runs it.
  i32 copyStart(const Uuid& client, u16 tenant, std::string_view key, std::string_view source, std::span<const std::string_view> targets, TaskKind kind, u32& index);
  i32 copyEnd(const Uuid& client, u16 tenant, std::string_view key, TaskKind kind, bool revoke);
  // Whether the client that runs its copy or move was lost.
  bool abandoned(const Extra& extra) const { return nowMs_ - cluster.client(extra.taskClient).seenMs > settings.clientTtlMs; }
  // Gives up the copy or move of an object; who runs it may still be writing.
  void endTask(u32 index);
  i32 clear(const Uuid& client, u16 tenant, std::string_view key, std::string_view segment);

  // Holders.
  u32 clientOf(const Uuid& id);
  i32 ping(const Uuid& id, i32& status);
  i32 mount(const SegmentSpec& spec, const Uuid& client);
  i32 remount(std::span<const SegmentSpec> specs, const Uuid& client);
  // Mounting these again changes nothing that the log keeps: they are all the memory that the client is known to hold.
  bool holds(std::span<const SegmentSpec> specs, const Uuid& client) const;
  i32 unmount(const Uuid& id, const Uuid& client, u64 graceMs);
  i32 setState(u32 segment, SegmentState state);
  // What our own connect to a segment's endpoint found; false when the segment is gone.
  bool probed(u32 segment, bool reached);
  void markSilent(u32 client);

  // Disks of clients (store_disks.cc, store_offload.cc, store_promote.cc).
  i32 mountDisk(const DiskSpec& spec, const Uuid& client);
  i32 unmountDisks(const Uuid& client);
  // One of them; `empty`: only where no object lies there (else notReady), so that none is stranded.
  i32 unmountDisk(const Uuid& client, const Uuid& disk, bool empty);
  // Devices of the cold tier (store_cold.cc): how many objects of its owner's memory now wait for it; `ended`: the whole table was looked at.
  u32 queueCold(Segment& disk, u16 tenant, u32 most, u32 records, bool& ended);
  i32 fillCold(const Uuid& client, const Uuid& disk, Disk::Fills fills, std::string_view tenant);
  i32 releaseCold(const Uuid& disk, u16 tenant, std::string_view key, u64 file);
  // The device that an object waits for, or is being written to.
  const Segment* coldFor(u32 index) const;
  void wipeDisks();
  // Null: that client has no such disk here, or has not said since our restart that it still does.
  Segment* diskOf(const Uuid& client, const Uuid& id, bool awaited = false);
  // For its owner: objects to store, numbers of files to remove, objects to bring back to memory.
  std::vector<Disk::Offload> takeOffloads(Segment& disk, u32 most);
  std::vector<u64> takeDropped(Segment& disk, u32 most);
  std::vector<u32> takePromotions(Segment& disk, u32 most);
  i32 keepFile(Segment& disk, u16 tenant, const StoredFile& file);
  bool isIn(u32 index, const StoredFile& file) const;
  i32 failOffload(Segment& disk, u16 tenant, std::string_view key, u32 task);
  i32 dropFile(Segment& disk, u16 tenant, std::string_view key, u64 file, Gone why);
  i32 keepFieldFile(Segment& disk, u16 tenant, std::string_view key, u64 size);
  i32 dropFieldFile(const Uuid& client, u16 tenant, std::string_view key);
  i32 promoteStart(const Uuid& client, u16 tenant, std::string_view key, u64 size, std::span<const std::string_view> preferred, u32& index);
  // A reader found other bytes in that replica than were stored: its owner looks.
  i32 doubt(u16 tenant, std::string_view key, u64 replica);

  // The folder that clients share (store_folder.cc). Once the log was read: it is the one of the settings.
  void openFolder();
  Segment* folder() { return cluster.segment(folder_); }
  const Segment* folder() const { return cluster.segment(folder_); }
  // Where a file lies: in the folder of this log, by its number alone.
  std::string nameOf(const Segment& folder, u64 file) const;
  std::string pathOf(const Segment& folder, u64 file) const { return folder.disk->folder->path + "/" + nameOf(folder, file); }
  // By who wrote the object: a file for these very bytes, which it may ask for again; and what became of that.
  i32 startFile(const Uuid& client, u16 tenant, std::string_view key, u64 size, u64 checksum, u64& file);
  i32 endFile(const Uuid& client, u16 tenant, std::string_view key, u64 file, bool whole);
  // A client removed it, to make room.
  i32 evictFile(u16 tenant, std::string_view key);
  // Files that no object has and nobody makes any more; and those of them that are gone.
  std::vector<u64> sweepable(u32 most) const;
  void swept(const std::vector<u64>& files);

  // Holders that remember what lies with them (store_holdings.cc): `lineage` is the name of what one log and its copies know.
  u64 lineage() const { return lineage_; }
  void nameLineage();
  i32 takeChanges(const Uuid& client, bool fromStart, u32 most, Changes& out);
  // Mounts; where its holder remembers another lineage, memory is kept free for what lies there.
  // Whether a holder's objects were kept by another log than this one.
  bool wantsRestore(u64 lineage) const { return lineage != 0 && lineage != lineage_; }
  i32 beginRestore(const Uuid& client, u64 lineage, std::span<const SegmentSpec> specs, bool& wanted);
  i32 restore(const Uuid& client, const Restored& object);
  i32 endRestore(const Uuid& client);
  void hit(u32 index);
  bool inMemory(u32 index) const;
  bool inMemory(const Replica& replica) const;
  bool onNof(const Replica& replica) const;
  const Replica* fileOn(u32 index, const Segment& disk) const;
  // How the wire names a replica; of a file of ours its number is in it.
  u64 replicaID(const Replica& replica) const;
  bool onDisk(const Replica& replica) const;
  u16 tenantOf(std::string_view name) const;
  u16 addTenant(std::string_view name);
  void setQuota(u16 tenant, bool registered, u64 bytes);
  // What a tenant may have: less than it asked for where all of them asked for more than there is.
  u64 quotaOf(u16 tenant) const;

  void keepNote(u8 kind, const Uuid& id, std::string text);
  void dropNote(const Uuid& id);
  const std::unordered_map<Uuid, Note, UuidHash>& notes() const { return notes_; }

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
  // The log was read: allocators are rebuilt, and every holder has a lifetime to come back. `heldNow`: the records came from a leader
  // until just now, so that whoever held memory still does.
  void recovered(bool heldNow = false);
  // Between records of a leader: what lies only with holders that are gone leaves this table as it left the leader's. True while there is more.
  bool tendReplayed();
  // The beginning of a snapshot, then its objects from a cursor on; the cursor after the last one, 0 at the end.
  void snapshotHead(Journal& to) const;
  u32 snapshotSome(Journal& to, u32 cursor, u32 records = 2'000) const;

  // Every key that can be read, as batches of KV events whose numbers end right before the next one's, or that of an empty one which was last.
  Dump beginDump();
  // The next batch's payload; false once all were made.
  bool nextOf(Dump& dump, std::string& payload);
  u64 unixMs() const { return journal.epochMs + nowMs_; }

  u64 usedBytes(Tier tier = Tier::memory) const { return rooms_[static_cast<u32>(tier)].used; }
  u64 capacityBytes(Tier tier = Tier::memory) const { return rooms_[static_cast<u32>(tier)].capacity; }
  u32 unfinished() const { return unfinished_; }
  // Something is under way that the next turn should not wait long for.
  bool wantsSoon() const { return rooms_[0].noSpace || rooms_[1].noSpace || pass_ != Pass::none; }
  bool softPinned(const Object& object) const;
  std::string_view groupName(const Object& object) const;
  // Of the bytes' layout, as its writer named it; empty for none.
  std::string_view fingerprintOf(const Object& object) const;

 private:
  Tick tick() const { return tickOf(nowMs_); }
  bool leased(const Object& object) const;
  void grant(Object& object);
  bool mayEvict(const Object& object, bool pinned) const;
  // Whether its eviction makes room: some of it lies where something else may.
  bool frees(u32 index) const;
  Room& roomOf(Tier tier) { return rooms_[static_cast<u32>(tier)]; }
  // Other than in the tier that it may leave.
  bool anyElse(u32 index, Tier tier) const;
  bool anyNof(u32 index) const;
  // Complete, in memory, or on what KV events call a disk.
  bool lies(u32 index, bool disk) const;
  bool anyCold(u32 index) const;
  bool offloads() const { return settings.offload || coldFills_; }
  void queueOffload(u32 index, bool evicting);
  Segment* diskFor(u32 index, bool evicting);
  // On a client's own disk.
  bool anyOwned(u32 index) const;
  bool onShared(const Replica& replica) const;
  // Whether anything but its file is being written.
  bool writing(u32 index) const;
  Replica* sharedOf(u32 index);
  void addShared(u32 index);
  bool makeRoomShared(Segment& folder, u64 size, u32 spared);
  i32 endShared(u32 index, bool whole);
  void dropShared(u32 index, Gone why);
  // What is being written of these kinds goes; whether the object does, as nothing else is left.
  bool dropUnfinished(u32 index, ReplicaType type, u64 holdMs, Gone why);
  // Complete, other than in the shared folder.
  bool anyEnded(u32 index) const;
  // Whether an end of that type is about it.
  bool isOf(const Replica& replica, ReplicaType type) const;
  // An unfinished put is given up; whether the object is gone.
  bool discard(u32 index);
  bool replayFolder(RecordReader& from);
  void setFiling(Object& object, bool filing);
  // Whether it waits for a disk now, and is not to be evicted otherwise.
  bool leaveToDisk(u32 index);
  void evictOne(u32 index, Tier tier);
  void dropTier(u32 index, Tier tier);
  // A writer comes: what an owner was reading is no longer what it was asked for.
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

  u32 place(u64 size, u64 count, const Wish& wish, Tier tier, Placed* out);
  bool placeIn(u32 segment, u64 size, Placed* out, u32& placed);
  void setReplicas(u32 index, const Placed* placed, u32 count, ReplicaStatus status);
  void addReplica(u32 index, const Placed& placed, ReplicaStatus status);
  // Takes out the replicas that `gone` names; their ranges stay unused for `holdMs`. Whether any are left.
  bool dropReplicas(u32 index, const std::function<bool(const Replica&)>& gone, u64 holdMs);
  void release(const Replica& replica, u16 tenant, u64 size, u64 holdMs);
  void free(u32 segment, u32 node);
  // Of a range that the log knows as held back.
  void freeHeld(u32 segment, u32 node);
  // Erases the object; a log record goes along unless the log implies it. `why` is what a later miss is told.
  void erase(u32 index, u64 holdMs, bool logged = true, Gone why = Gone::unknown);
  // Dead replicas go; 0 when that was all there was.
  u32 pruned(u32 index);
  u32 find(u16 tenant, std::string_view key);
  i32 create(u32 client, u16 tenant, std::string_view key, u64 size, const Wish& wish, std::string_view group, bool files, u32& index);
  i32 checkWish(u16 tenant, std::string_view key, u64 size, const Wish& wish) const;
  // What stands in the way of a new object goes if it may: ok, or exists.
  i32 makeWay(u16 tenant, std::string_view key);
  // Whether a tenant may have as much more; what it has makes room first, `spared` not.
  i32 overQuota(u16 tenant, u64 more, std::string_view key = {}, u32 spared = 0);
  void evictOf(u16 tenant, u64 bytes, bool pinned, u32 spared);
  // Fewer replicas where all of them are more than the tenant may have.
  void assignQuota(u16 tenant, bool registered, u64 bytes);
  u32 withinQuota(u16 tenant, u64 size, const Placed* placed, u32 count);
  void evictWhole(u32 index, Tier tier);
  bool groupMayGo(const Object& object, bool pinned, u32 spared) const;
  i32 refuseForSpace();
  bool evictNow(u64 size, Tier tier);  // for a put that found no space; whether any memory came free
  u32 placeEvicting(u64 size, const Wish& wish, Tier tier, Placed* out, bool optional = false);  // as `place`; an `optional` replica is worth no eviction
  i32 checkMount(const SegmentSpec& spec, u32 client) const;
  // Of a NOF segment, which has no owner that could look at its bytes.
  bool dropDamaged(u32 index, u64 replica);
  // What another process held that is not heard any more, by the same id.
  bool takeOver(Segment& segment, const SegmentSpec& spec, u32 client);
  void endExtent(u64 id, u64 holdMs);
  Extent forgetExtent(u64 id);
  void endOldExtents(u32 most);
  void note(u32 index, const Ended& ended, u32 fingerprint);
  // 0 for none, and for one too many.
  u32 fingerprintOf(std::string_view text);
  void setOwner(Object& object, u32 client);
  void setProcessing(Object& object, bool processing);
  bool anyStatus(u32 index, ReplicaStatus status) const;
  void suspect(u32 index);
  void suspectSegment(u32 segment);
  // Subscribers learn what changed about a key: readable now (or `again`), or not any more.
  void announce(u32 index, bool again = false);
  void retract(u32 index);
  KvEvents::Object described(u32 index, u8 medium) const;
  void announceOn(u32 index, u8 medium, bool again);
  void tellHolders(u32 index);
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
