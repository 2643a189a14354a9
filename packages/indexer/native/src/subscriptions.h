// The index's knowledge of publishers: namespaces, streams, the groups of an engine's KV cache, subscriptions.
#pragma once
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "flat_map.h"

namespace svc {

struct Namespace {
  std::string tenant, model, lora, salt;  // lora: "", "n:" and a name, or "i:" and an id without a name
  u32 blockSize = 0;
  u32 ahead = 0;         // tokens after each block that are hashed with it: 1 with bigram keys, more with an engine that looks ahead
  bool bare = false;     // some blocks came as hashes alone, which may include LoRA and salt
  bool live = false;
  u64 seed = 0;          // makes its keys distinct from other namespaces'
  u64 nameSeed = 0;      // the same for publishers' own names, independent of what is hashed with each block
};

enum class PublisherKind : u8 { Engine, Store };

// The blocks of a prompt that a group of an engine's KV cache needs, so that the prompt can be served up to a point.
enum class GroupKind : u8 {
  Whole,    // every block before the point
  Window,   // those of the last `window` tokens before it
  Chunk,    // those from the last multiple of `window` tokens on
  State,    // the last block before it
  Unsaid,   // its events name no kind: treated as Whole
  Unknown,  // its kind is not known, or its window's size is missing: treated as Whole
};

// A group of an engine's KV cache. Stored events name its kind, removals only its number.
struct CacheGroup {
  u32 rank = 0, index = 0;
  GroupKind kind = GroupKind::Unsaid;
  u32 window = 0;
  u32 otherBlockSize = 0;  // above 0: its blocks have another size than the registered one, so they are not indexed
  std::string word;        // the kind as its events name it
};

// The fields that distinguish the streams of a subscription.
struct StreamName {
  std::string_view backend, medium;
  u32 rank = 0;
  u64 shard = 0;
  u32 group = 0;
  std::string_view owner;
};

// One holder: a bit in HolderSets.
struct Stream {
  u32 subscription = 0;
  u32 rank = 0;
  u16 medium = 0;
  bool active = false;
  u32 group = 0;  // of an engine's KV cache
  bool isUncertain = false;  // its blocks are those of `twin` that a loss may have affected, see unverified.cc
  u32 twin = noStream;       // that stream, or the uncertain one of this stream
  std::string owner;  // of a tier that several engines share; each owner's copies are its own
  u64 shard = 0;  // 0: whole blocks; `wholeShard`: the blocks whose shards are all there; else one shard's blocks
  bool broken = false;  // of `wholeShard`: a shard could not be tracked, so no block is known to be complete
  std::string backend;
  bool counts() const { return active && (shard == 0 || shard == wholeShard); }
  bool is(const StreamName& name, std::string_view ofMedium) const {
    return !isUncertain && rank == name.rank && shard == name.shard && group == name.group && ofMedium == name.medium && backend == name.backend && owner == name.owner;
  }
  static constexpr u64 wholeShard = ~0ull;
  static constexpr u32 noStream = ~0u;
};

// A stored event whose parent is not known yet; the hashes of its blocks are computed.
struct ParkedEvent {
  u64 parent = 0;
  u32 stream = 0, space = 0;
  bool inheritsSalt = false;
  bool sparse = false;  // its blocks wait for their own names and have no hashes of ours: another group's events show where they belong
  std::vector<u64> names, locals;
  std::vector<bool> gone;
};

// Blocks that another tier of an engine keeps as one, under one name.
struct Chunk {
  u32 space = 0;
  std::vector<u64> sequences;
};

// Joins a registration's salt with that of a request.
inline std::string joinedSalt(std::string_view registered, std::string_view requested) {
  if (registered.empty()) return std::string(requested);
  if (requested.empty() || requested == registered) return std::string(registered);
  return std::string(registered).append(1, '\x1f').append(requested);
}
inline std::string_view registeredSalt(std::string_view joined) { return joined.substr(0, joined.find('\x1f')); }

// The owner of blocks that an engine's connector puts into a store that several engines share, and of the store's own streams of them.
inline constexpr std::string_view sharedStore = "shared-store";

struct Subscription {
  std::string instance, tenant, model, lora, salt, key;
  u32 blockSize = 0, rank = 0;
  PublisherKind kind = PublisherKind::Engine;
  bool active = false;
  bool dead = false;      // it has not answered for so long that nothing of it counts in answers until it does
  bool ownNames = false;  // its block names contradict another publisher's, so only `names` has them
  bool standard = false;  // its hashes were seen to be the standard's
  bool evicted = false;   // the memory budget evicted blocks of it since it last started or cleared everything
  bool unnumbered = false;  // some event of it had no event_id
  bool isEnveloped = false;   // some event of it came in the specification's envelope, so it need not keep its blocks as engines do
  bool countsCopies = false;  // each physical copy of a block is stored and removed by an event of its own
  u64 scope = 0;
  FlatMap names;
  FlatMap copies;  // by stream and block: one more than the number of further copies
  std::vector<CacheGroup> groups;
  std::vector<u32> streams;
  std::unordered_set<u32> spaces;
  std::unordered_map<u64, u64> lastEventId;  // by stream and namespace
  std::unordered_set<u64> unverified;           // of the same: streams that a gap may have affected, see unverified.cc
  std::deque<ParkedEvent> park;
  std::unordered_set<u64> awaited;  // the parked events' parents
  u32 parkedBlocks = 0;
  std::string keyHead;  // of a store whose keys have engines' hashes: the head of those keys that are read
  FlatMap waiting;      // by stream and name: objects of such a store whose blocks no engine has named yet
  std::unordered_map<u64, Chunk> chunks;  // by the publisher's names for them
  std::string complaint;  // the reason of the last refusal
  struct Seen {
    u64 sequence = ~0ull, print = 0;
  };
  std::vector<Seen> seen;  // a ring of fingerprints of the last batches
  u64 weighed = 0;         // its share of Index::subscriptionBytes_
};

}  // namespace svc
