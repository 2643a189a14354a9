// The index: namespaces, subscriptions with their streams, blocks and their holders; fed by batches, queried by prefix.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "block_arena.h"
#include "event_batch.h"
#include "flat_map.h"
#include "holder_sets.h"
#include "id_table.h"
#include "outcomes.h"
#include "subscriptions.h"

namespace svc {

// The result of a batch: after `More`, `applyMore` must continue it.
enum class Taken : u8 { Malformed, Whole, More };

// A snapshot's first bytes: "SVCVIX05".
inline constexpr u64 snapshotMagic = 0x3530584956435653ull;

class Index {
 public:
  Index(u64 budgetBytes, u64 seed);

  // Subscriptions
  u32 subscribe(Subscription description);
  void unsubscribe(u32 id);
  // A dead publisher keeps its blocks, and none of them counts.
  void setDead(u32 id, bool dead);
  // The publisher started again: drops its blocks.
  void clear(u32 id);
  // Batches were lost: the publisher's blocks are uncertain from here on.
  void lose(u32 id);
  // Drops uncertain blocks.
  void forgetUncertain(u32 id);
  bool hasUncertain(u32 id) const;
  // Malformed: nothing was applied. More: no other batch may come between. The payload is read only during the call.
  Taken apply(u32 id, u64 sequence, const u8* payload, std::size_t size, Outcomes& outcomes);
  Taken applyMore(u32 id, Outcomes& outcomes);
  // Returns 0 if it is not among the last batches, 1 if it is the same, 2 if another batch had the number.
  int seen(u32 id, u64 sequence, const u8* payload, std::size_t size) const;

  const EventBatch& batch() const { return batch_; }
  Subscription& subscription(u32 id) { return subscriptions_[id]; }
  const std::vector<Namespace>& spaces() const { return spaces_; }
  const std::vector<Stream>& streams() const { return streams_; }
  const std::vector<std::string>& media() const { return media_; }
  const std::deque<Subscription>& subscriptions() const { return subscriptions_; }
  const HolderSets& sets() const { return sets_; }
  std::size_t liveSpaces() const { return spaces_.size() - freeSpaces_.size(); }
  BlockArena& arena() { return arena_; }
  const BlockArena& arena() const { return arena_; }
  u64 seed() const { return seed_; }
  u64 version() const { return version_; }        // of subscriptions and streams: cached views depend on it
  u64 changes() const { return changes_; }        // of contents
  u64 evicted() const { return evicted_; }
  u64 budgetBytes() const { return budget_; }
  u64 bytes() const;
  u64 indexBytes() const { return static_cast<u64>(arena_.live()) * 12 + table_.bytes(); }
  u64 nameBytes() const { return engineInUse_ ? static_cast<u64>(arena_.live()) * 8 + engineTable_.bytes() : 0; }
  u32 tick();
  // Frees cleared blocks, looking at `most` blocks at most; returns true while there are more.
  bool reclaim(u32 most);

  // Returns a bit for each number of lookahead tokens that some namespace's blocks were hashed with.
  u32 aheads() const { return aheads_; }
  // Returns -1 if no event has named it.
  std::int64_t findSpace(const Namespace& like) const;
  u32 find(u32 space, u64 sequence) const;
  // Finds a block by the name that publishers give to it.
  u32 findNamed(u32 space, u64 name) const;
  [[gnu::always_inline]] void prefetch(u32 space, u64 sequence) const { table_.prefetch(mix(sequence ^ spaces_[space].seed)); }
  // True until it is known whether a gap affected the stream's blocks, which are not answered as certain meanwhile.
  bool isUnverified(u32 stream, std::int64_t space) const {
    const auto& unverified = subscriptions_[streams_[stream].subscription].unverified;
    return !unverified.empty() && space >= 0 && unverified.contains(static_cast<u64>(stream) << 32 | static_cast<u64>(space));
  }
  // Returns whether the block is in use and belongs to this namespace.
  bool isOf(u32 space, u32 block) const { return arena_.holders[block] != HolderSets::none && spaceOf(block) == space; }
  u32 spaceOf(u32 block) const { return sets_[arena_.holders[block]].space; }

  // Plain operations without an event, for benches and snapshots.

  // Call this before blocks are stored; returns false if there is no capacity for them.
  bool ensureCapacity(u64 blocks) {
    limit_ = limitBlocks();
    return evictFor(blocks);
  }
  u32 internSpace(const Namespace& like);
  std::int64_t internStream(u32 subscription, const StreamName& name);
  void store(u32 subscription, u32 stream, u32 space, const u64* sequences, u32 count, const u64* names, u32 previous, Outcomes& outcomes);
  // `own`: the publisher's names, made distinct if its namespaces may use the same ones. `everywhere`: the event did not name the
  // namespace.
  void remove(u32 subscription, u32 stream, std::int64_t space, const u64* names, u32 count, Outcomes& outcomes, const u64* own = nullptr, bool everywhere = false);
  // Writes pieces to `put`. `note` is stored in the snapshot: the caller's own state.
  void save(std::string_view note, const std::function<void(const u8*, std::size_t)>& put) const;
  // Loads into an empty index. Returns false with `problem` set; the index must not be used then.
  bool load(const u8* data, std::size_t size, std::string& note, std::string& problem);

 private:
  template <bool byName>
  friend class BlockKeys;
  static constexpr std::size_t maxSpaces = 1 << 18, maxStreams = 1 << 14, maxStreamsEach = 1024, maxMedia = 16, maxParkedEvents = 1024, maxGroups = 64;
  static constexpr std::size_t firstSpaceCollection = 1024;
  static constexpr u32 maxParkedBlocks = 1 << 14;
  static constexpr u32 ghostCapacity = 1 << 16, releasedAtOnce = 32, freedForShrink = 64;
  static constexpr std::size_t seenRing = 1024;
  static constexpr u32 sliceBlocks = 2048;  // of a batch in one go, which takes half a millisecond
  static constexpr u32 nobody = ~0u;

  bool loadBlocks(class SnapshotReader& in);
  void loadPark(class SnapshotReader& in, Subscription& sub);
  void restoreSpace(const Namespace& like, bool live, bool bare);
  void fillSpace(u32 id, const Namespace& like);
  bool isLong() const;
  Taken goOn(Outcomes& outcomes);
  void endBatch();
  u32 rankOf(const Subscription& sub, const Event& event) const;
  void forgetPending(u32 id) {
    if (pending_ == id) pending_ = nobody;
  }
  void distrustNumbers(u32 id);
  // Returns the stream that has this one's uncertain blocks; `HolderSets::nowhere` if there is no capacity for one.
  u32 twinOf(u32 stream);
  void dropTwins(Subscription& sub);
  void makeUncertain(Subscription& sub, const std::vector<u32>& streams, std::int64_t space);
  void settleUnverified(Subscription& sub, u32 stream, u32 space, const Event& event);
  void dropNames(Subscription& sub);
  void removeParked(Subscription& sub, u32 stream, const u64* names, u32 count);
  void applyEvent(u32 id, const Event& event, Outcomes& outcomes);
  void applyStored(u32 id, const Event& event, Outcomes& outcomes);
  void applyRemoved(u32 id, const Event& event, Outcomes& outcomes);
  void applyCleared(u32 id, const Event& event, Outcomes& outcomes);
  bool accepts(Subscription& sub, const Event& event, Namespace& space, Outcomes& outcomes);
  bool inOrder(Subscription& sub, u32 stream, u32 space, const Event& event, Outcomes& outcomes);
  void localHashes(const Event& event, Namespace& space, const Subscription& sub, Outcomes& outcomes);
  void judgeSeed(Subscription& sub, const Event& event, const Namespace& space, Outcomes& outcomes);
  void parkEvent(Subscription& sub, const Event& event, u64 parent, const u64* names, u32 stream, u32 space, bool inheritsSalt, Outcomes& outcomes);
  void unpark(u32 id, Outcomes& outcomes);

  // Objects of a store under keys that have engines' hashes (keyed.cc).
  void applyKeyed(u32 id, const Event& event, Outcomes& outcomes);
  bool acceptsKey(u32 id, const Event& event, Outcomes& outcomes);
  u32 findAnyNamed(u64 scope, u64 name) const;
  void joinWaiting(u32 space, const u64* names, const u64* sequences, u32 count);
  static std::string_view ownerOf(const Subscription& sub, const Event& event);
  // True if an engine's connector put the blocks into a shared store, and the device's events have named all of them.
  bool isPutBy(const Subscription& sub, const Event& event) const;

  // Tiers of an engine that keep several blocks as one (chunks.cc).
  static bool isOtherTier(const Subscription& sub, const Event& event);
  static bool isChunked(const Subscription& sub, const Event& event);
  void applyChunks(u32 id, const Event& event, Outcomes& outcomes);
  // Returns false if none of the names is a chunk's.
  bool removeChunks(u32 id, const Event& event, Outcomes& outcomes);
  void place(u32 id, u32 stream, u32 space, u32 parent, u64 previous, bool root, const u64* names, const u64* locals, u32 count, Outcomes& outcomes);

  // Equal names in two namespaces are two blocks if they come in an envelope; returns 0 if names are used unchanged.
  u64 qualifierOf(const Subscription& sub, const Event& event, const Namespace& space) const;
  const u64* qualified(const u64* names, u32 count, u64 qualifier);
  u32 findName(const Subscription& sub, u64 name) const;
  u32 findParent(const Subscription& sub, u32 space, u64 name) const;
  u32 findShared(u64 scope, u64 name) const;
  bool isNamed(u32 block, u64 scope, u64 name) const { return arena_.engine[block] == name && scopes_[spaceOf(block)] == scope && !isGone(block); }
  bool holds(const Subscription& sub, u32 block) const;
  // True if the block is cleared and not freed yet.
  bool isGone(u32 block) const { return sets_.isStale(arena_.holders[block]) && sets_[arena_.holders[block]].empty(); }
  std::int64_t wholeOf(u32 stream) const;
  // Returns the stream whose event_id counts for this one.
  u32 orderOf(u32 stream) const {
    const std::int64_t whole = streams_[stream].shard == 0 ? -1 : wholeOf(stream);
    return whole < 0 ? stream : static_cast<u32>(whole);
  }
  void giveUpShards(u32 subscription, StreamName name);
  // Learns the event's description of its group; nullptr if the publisher has too many groups.
  CacheGroup* learnGroup(Subscription& sub, u32 rank, const Event& event);
  // Stores blocks that are known only by these names; those that are not known yet are parked.
  void placeSparse(u32 id, ParkedEvent event, Outcomes& outcomes);
  void park(Subscription& sub, ParkedEvent event, Outcomes& outcomes);
  // Drops the further copies that these streams have, in one namespace or in all with -1; `sweepCopies` drops those of blocks that their
  // stream no longer has.
  void dropCopies(Subscription& sub, const std::vector<u32>& streams, std::int64_t space);
  void sweepCopies(Subscription& sub);
  // `addCopy` counts one more copy of a block that the stream has; false if memory runs out. `takeCopy` counts one less; false if it was
  // the last one.
  bool addCopy(u32 id, u32 stream, u32 block);
  bool takeCopy(Subscription& sub, u32 stream, u32 block);
  static u64 copyKey(u32 stream, u32 block) { return static_cast<u64>(stream) << 32 | block; }
  void joinShards(u32 stream, u32 space, const u64* sequences, u32 count);
  void breakShards(u32 stream, std::int64_t space, const u64* sequences, u32 count);
  void forgetShards(Subscription& sub);
  bool hasRoomForSpace(const Namespace& like);
  void collectSpaces();
  bool nameFresh(const Subscription& sub, const IdTable::Spot& spot, u64 key, u32 block, u64 name);
  bool nameBlock(u32 id, u32 stream, u32 block, u64 name);
  void goOwnNames(Subscription& sub, u32 stream, u32 fresh);
  void sweepNames(Subscription& sub);
  void setHolders(u32 block, u32 set);
  void toGhost(u32 block);
  void unname(u32 block);
  void release(u32 block);
  // Frees a block that is in no table any more.
  void free(u32 block);
  // Merges some of the tables' sparse segments; returns true while there are more.
  bool shrinkTables();
  // Releases these blocks, skipping each 0, and returns how many it released.
  u32 releaseAll(const u32* blocks, u32 count);
  // Releases some of the oldest ghosts.
  u32 releaseGhosts();
  bool evictFor(u64 blocks);
  u64 limitBlocks() const;
  void weigh(Subscription& sub);
  void evict(u64 blocks);
  bool findOldest();
  // Removes these streams' bits from every block (of one namespace, or of all with -1) at once; `reclaim` frees the blocks.
  void purge(const std::vector<u32>& streams, std::int64_t space);
  u64 keyOf(u32 block) const { return mix(arena_.sequence[block] ^ spaces_[spaceOf(block)].seed); }
  u64 nameKeyOf(u32 block) const { return mix(arena_.engine[block] ^ scopes_[spaceOf(block)]); }

  u64 budget_, seed_;
  BlockArena arena_;
  IdTable table_, engineTable_;
  HolderSets sets_;
  std::vector<Namespace> spaces_;
  std::vector<u64> scopes_;  // by namespace: the scope in which publishers' names are shared
  std::vector<u32> freeSpaces_;
  std::size_t collectSpacesAt_ = firstSpaceCollection, refusedSpaces_ = 0;
  u64 spaceBytes_ = 0;
  u32 aheads_ = 0;
  u32 reclaimAt_ = 0;
  std::unordered_map<std::string, u32> spaceIds_;
  std::vector<Stream> streams_;
  std::vector<std::string> media_;
  std::deque<Subscription> subscriptions_;
  std::deque<u32> ghosts_;  // blocks without holders under which children may still be stored, the oldest first
  std::vector<u32> waiters_;  // subscriptions with objects that wait for their names
  std::vector<std::pair<u32, u32>> oldest_;  // stamp and inverse number of the pages that are evicted next, from the end
  u64 freedSinceSpaces_ = 0;
  u32 freedSinceShrink_ = 0;
  EventBatch batch_;
  u32 pending_ = nobody;  // the subscription whose batch is not completely applied yet
  std::size_t pendingAt_ = 0;
  std::vector<u8> kept_;  // its payload
  bool taken_ = false;  // of the event that is applied: it was not refused
  std::vector<u64> locals_, sequences_, qualified_;
  std::vector<u8> blockBytes_;
  u64 version_ = 1, changes_ = 0, evicted_ = 0;
  u32 clock_ = 1;
  u64 limit_ = 0;  // blocks, computed once per batch
  u64 subscriptionBytes_ = 0;
  bool engineInUse_ = false;
};

// Encodes all of a namespace as one text.
std::string spaceKey(const Namespace& space);

// Makes a namespace's keys distinct from others'.
u64 seedOf(const Namespace& space);

// Identifies the scope in which publishers share their own block names.
u64 scopeSeed(std::string_view tenant, std::string_view model, u32 blockSize);

// Returns GPU, CPU, DISK, or the given name in capitals.
std::string mediumOf(std::string_view wire);

}  // namespace svc
