// The index: namespaces, subscriptions with their streams, blocks and who holds them; fed by batches, asked by prefix.
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

// What became of a batch: `More` waits for `applyMore`.
enum class Taken : u8 { Malformed, Whole, More };

// What a snapshot begins with: "SVCVIX04".
inline constexpr u64 snapshotMagic = 0x3430584956435653ull;

class Index {
 public:
  Index(u64 budgetBytes, u64 seed);

  // Subscriptions
  u32 subscribe(Subscription description);
  void unsubscribe(u32 id);
  // Its publisher began anew.
  void clear(u32 id);
  // Batches of it were lost: what it held is uncertain from here on.
  void lose(u32 id);
  // Drops what is uncertain.
  void forgetUncertain(u32 id);
  bool hasUncertain(u32 id) const;
  // Batches. Malformed: nothing was applied. More: no other batch comes between. The payload is read during the call alone.
  Taken apply(u32 id, u64 sequence, const u8* payload, std::size_t size, Outcomes& outcomes);
  Taken applyMore(u32 id, Outcomes& outcomes);
  // 0: not among the last batches, 1: the very same one, 2: another one of that number.
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
  u64 version() const { return version_; }        // of subscriptions and streams: cached views hang on it
  u64 changes() const { return changes_; }        // of contents
  u64 evicted() const { return evicted_; }
  u64 budgetBytes() const { return budget_; }
  u64 bytes() const;
  u64 indexBytes() const { return static_cast<u64>(arena_.live()) * 12 + table_.bytes(); }
  u64 nameBytes() const { return engineInUse_ ? static_cast<u64>(arena_.live()) * 8 + engineTable_.bytes() : 0; }
  u32 tick();
  // Frees blocks that were cleared, at most this many looked at; true while there are more.
  bool reclaim(u32 most);

  // A bit for each number of tokens that blocks of some namespace were hashed with behind them.
  u32 aheads() const { return aheads_; }
  // -1 where no event has named it.
  std::int64_t findSpace(const Namespace& like) const;
  u32 find(u32 space, u64 sequence) const;
  // By the name that publishers have for it.
  u32 findNamed(u32 space, u64 name) const;
  [[gnu::always_inline]] void prefetch(u32 space, u64 sequence) const { table_.prefetch(mix(sequence ^ spaces_[space].seed)); }
  // Not answered until it is known whether a gap touched it.
  bool isDoubted(u32 stream, std::int64_t space) const {
    const auto& doubted = subscriptions_[streams_[stream].subscription].doubted;
    return !doubted.empty() && space >= 0 && doubted.contains(static_cast<u64>(stream) << 32 | static_cast<u64>(space));
  }
  // Whether it is in use, and of this namespace.
  bool isOf(u32 space, u32 block) const { return arena_.holders[block] != HolderSets::none && spaceOf(block) == space; }
  u32 spaceOf(u32 block) const { return sets_[arena_.holders[block]].space; }

  // For measuring and for snapshots: the plain moves, without an event around them.
  // Before blocks are stored; false where there is no room for so many.
  bool roomFor(u64 blocks) {
    limit_ = limitBlocks();
    return makeRoom(blocks);
  }
  u32 internSpace(const Namespace& like);
  std::int64_t internStream(u32 subscription, const StreamName& name);
  void store(u32 subscription, u32 stream, u32 space, const u64* sequences, u32 count, const u64* names, u32 previous, Outcomes& outcomes);
  // `own`: what the publisher's names were made into where its namespaces may use the same ones; `everywhere`: the event did not say in which namespace.
  void remove(u32 subscription, u32 stream, std::int64_t space, const u64* names, u32 count, Outcomes& outcomes, const u64* own = nullptr, bool everywhere = false);
  // In pieces to `put`. `note` travels with the snapshot: what the caller has to remember beside the index.
  void save(std::string_view note, const std::function<void(const u8*, std::size_t)>& put) const;
  // Into an index that has nothing yet; false with `problem` set, and the index is not to be used then.
  bool load(const u8* data, std::size_t size, std::string& note, std::string& problem);

 private:
  template <bool byName>
  friend class BlockKeys;
  static constexpr std::size_t maxSpaces = 1 << 18, maxStreams = 1 << 14, maxStreamsEach = 1024, maxMedia = 16, maxParkedEvents = 1024, maxGroups = 64;
  static constexpr std::size_t firstSpaceCollection = 1024;
  static constexpr u32 maxParkedBlocks = 1 << 14;
  static constexpr u32 ghostCapacity = 1 << 16, releasedAtOnce = 32, freedForShrink = 64;
  static constexpr std::size_t seenRing = 1024;
  static constexpr u32 sliceBlocks = 2048;  // of a batch in one go: a matter of half a millisecond
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
  void doubtAll(u32 id);
  // The stream that holds this one's uncertain blocks; `HolderSets::nowhere` where there is no room for one.
  u32 twinOf(u32 stream);
  void dropTwins(Subscription& sub);
  void makeUncertain(Subscription& sub, const std::vector<u32>& streams, std::int64_t space);
  void settleDoubt(Subscription& sub, u32 stream, u32 space, const Event& event);
  void dropNames(Subscription& sub);
  void removeParked(Subscription& sub, u32 stream, const u64* names, u32 count);
  void applyEvent(u32 id, const Event& event, Outcomes& outcomes);
  void applyStored(u32 id, const Event& event, Outcomes& outcomes);
  void applyRemoved(u32 id, const Event& event, Outcomes& outcomes);
  void applyCleared(u32 id, const Event& event, Outcomes& outcomes);
  bool accepts(Subscription& sub, const Event& event, Namespace& space, Outcomes& outcomes);
  bool inOrder(Subscription& sub, u32 stream, u32 space, const Event& event, Outcomes& outcomes);
  bool localHashes(const Event& event, Namespace& space, Subscription& sub, Outcomes& outcomes);
  void judgeSeed(Subscription& sub, const Event& event, const Namespace& space, Outcomes& outcomes);
  void parkEvent(Subscription& sub, const Event& event, u64 parent, const u64* names, u32 stream, u32 space, bool inheritsSalt, Outcomes& outcomes);
  void unpark(u32 id, Outcomes& outcomes);
  void place(u32 id, u32 stream, u32 space, u32 parent, u64 previous, bool root, const u64* names, const u64* locals, u32 count, Outcomes& outcomes);

  // In an envelope equal names in two namespaces are two blocks; 0 where they are taken as they are.
  u64 qualifierOf(const Subscription& sub, const Event& event, const Namespace& space) const;
  const u64* qualified(const u64* names, u32 count, u64 qualifier);
  u32 findName(const Subscription& sub, u64 name) const;
  u32 findParent(const Subscription& sub, u32 space, u64 name) const;
  u32 findShared(u64 scope, u64 name) const;
  bool isNamed(u32 block, u64 scope, u64 name) const { return arena_.engine[block] == name && scopes_[spaceOf(block)] == scope && !isGone(block); }
  bool holds(const Subscription& sub, u32 block) const;
  // Cleared, and not freed yet.
  bool isGone(u32 block) const { return sets_.isStale(arena_.holders[block]) && sets_[arena_.holders[block]].empty(); }
  std::int64_t wholeOf(u32 stream) const;
  // Whose event_id counts for this stream.
  u32 orderOf(u32 stream) const {
    const std::int64_t whole = streams_[stream].shard == 0 ? -1 : wholeOf(stream);
    return whole < 0 ? stream : static_cast<u32>(whole);
  }
  void giveUpShards(u32 subscription, StreamName name);
  // What the event says of its group; nullptr where a publisher has too many.
  CacheGroup* learnGroup(Subscription& sub, u32 rank, const Event& event);
  // Blocks that are known by these names alone; what is not known yet waits.
  void placeSparse(u32 id, ParkedEvent event, Outcomes& outcomes);
  void park(Subscription& sub, ParkedEvent event, Outcomes& outcomes);
  // Forgets the further copies that these streams have, of one namespace or of all with -1; those of blocks that their stream no longer has.
  void dropCopies(Subscription& sub, const std::vector<u32>& streams, std::int64_t space);
  void sweepCopies(Subscription& sub);
  // One more of a block that the stream has; false without memory. One less, or false where it is the last one.
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
  // What is in no table any more.
  void free(u32 block);
  // Some of the tables' sparse segments; true while there are more.
  bool shrinkTables();
  // These, 0 among them standing for none; how many.
  u32 releaseAll(const u32* blocks, u32 count);
  // The oldest ghosts, some of them.
  u32 releaseGhosts();
  bool makeRoom(u64 blocks);
  u64 limitBlocks() const;
  void weigh(Subscription& sub);
  void evict(u64 blocks);
  bool findOldest();
  // Takes these streams' bits off every block (of one namespace, or of all with -1) at once; `reclaim` frees the blocks.
  void purge(const std::vector<u32>& streams, std::int64_t space);
  u64 keyOf(u32 block) const { return mix(arena_.sequence[block] ^ spaces_[spaceOf(block)].seed); }
  u64 nameKeyOf(u32 block) const { return mix(arena_.engine[block] ^ scopes_[spaceOf(block)]); }

  u64 budget_, seed_;
  BlockArena arena_;
  IdTable table_, engineTable_;
  HolderSets sets_;
  std::vector<Namespace> spaces_;
  std::vector<u64> scopes_;  // by namespace: in which publishers' names are shared
  std::vector<u32> freeSpaces_;
  std::size_t collectSpacesAt_ = firstSpaceCollection, refusedSpaces_ = 0;
  u64 spaceBytes_ = 0;
  u32 aheads_ = 0;
  u32 reclaimAt_ = 0;
  std::unordered_map<std::string, u32> spaceIds_;
  std::vector<Stream> streams_;
  std::vector<std::string> media_;
  std::deque<Subscription> subscriptions_;
  std::deque<u32> ghosts_;  // blocks that nobody holds but that children may still be stored under, the oldest first
  std::vector<std::pair<u32, u32>> oldest_;  // stamp and inverse number of the pages that are evicted next, from the end
  u64 freedSinceSpaces_ = 0;
  u32 freedSinceShrink_ = 0;
  EventBatch batch_;
  u32 pending_ = nobody;  // whose batch is not applied wholly yet
  std::size_t pendingAt_ = 0;
  std::vector<u8> kept_;  // its payload
  bool taken_ = false;  // of the event that is applied: it was not refused
  std::vector<u64> locals_, sequences_, qualified_;
  std::vector<u8> blockBytes_;
  u64 version_ = 1, changes_ = 0, evicted_ = 0;
  u32 clock_ = 1;
  u64 limit_ = 0;  // blocks, judged once a batch
  u64 subscriptionBytes_ = 0;
  bool engineInUse_ = false;
};

// All that a namespace is, as one text.
std::string spaceKey(const Namespace& space);

// Sets a namespace's keys apart from others'.
u64 seedOf(const Namespace& space);

// In which publishers' own names for blocks are shared.
u64 scopeSeed(std::string_view tenant, std::string_view model, u32 blockSize);

// GPU, CPU, DISK, or the given word in capitals.
std::string mediumOf(std::string_view wire);

}  // namespace svc
