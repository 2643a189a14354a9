// What the index knows of publishers: namespaces, streams, the groups of an engine's KV cache, subscriptions.
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
  u32 ahead = 0;         // tokens behind each block that are hashed with it: 1 with bigram keys, more with an engine that looks ahead
  bool bare = false;     // some blocks came as hashes alone: LoRA and salt may be in them
  bool live = false;
  u64 seed = 0;          // sets its keys apart from other namespaces'
  u64 nameSeed = 0;      // the same for publishers' own names, whatever is hashed with each block
};

enum class PublisherKind : u8 { Engine, Store };

// Which of a prompt's blocks a group of an engine's KV cache needs, for the prompt to be served up to a point.
enum class GroupKind : u8 {
  Whole,    // every block before the point
  Window,   // those of the last `window` tokens before it
  Chunk,    // those from the last multiple of `window` tokens on
  State,    // the last block before it
  Unsaid,   // its events name no kind: as Whole
  Unknown,  // they name one that nobody here knows, or not how large its window is: as Whole
};

// A group of an engine's KV cache. Stored events name its kind, removals its number alone.
struct CacheGroup {
  u32 rank = 0, index = 0;
  GroupKind kind = GroupKind::Unsaid;
  u32 window = 0;
  u32 otherBlockSize = 0;  // above 0: its blocks have another size than the registered one, so they are not indexed
  std::string word;        // the kind as its events name it
};

// What tells the streams of a subscription apart.
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
  bool isUncertain = false;  // its blocks are those of `twin` that a loss may have taken, see doubt.cc
  u32 twin = noStream;       // that stream, or the uncertain one of this
  std::string owner;  // of a tier that several share; each owner's copies are its own
  u64 shard = 0;  // 0: whole blocks; `wholeShard`: the blocks whose shards are all there; else one shard's blocks
  bool broken = false;  // of `wholeShard`: a shard could not be kept, so no block is known to be whole
  std::string backend;
  bool counts() const { return active && (shard == 0 || shard == wholeShard); }
  bool is(const StreamName& name, std::string_view ofMedium) const {
    return !isUncertain && rank == name.rank && shard == name.shard && group == name.group && ofMedium == name.medium && backend == name.backend && owner == name.owner;
  }
  static constexpr u64 wholeShard = ~0ull;
  static constexpr u32 noStream = ~0u;
};

// A stored event whose parent is not known yet; its blocks' own hashes are ready.
struct ParkedEvent {
  u64 parent = 0;
  u32 stream = 0, space = 0;
  bool inheritsSalt = false;
  bool sparse = false;  // its blocks wait for their own names, and have no hashes of ours: another group's events say where they are
  std::vector<u64> names, locals;
  std::vector<bool> gone;
};

struct Subscription {
  std::string instance, tenant, model, lora, salt, key;
  u32 blockSize = 0, rank = 0;
  PublisherKind kind = PublisherKind::Engine;
  bool active = false;
  bool ownNames = false;  // its block names contradict another publisher's: they are kept in `names` alone
  bool standard = false;  // its hashes were seen to be the standard's
  bool evicted = false;   // the memory budget took blocks of it, since it last began anew or cleared all
  bool unnumbered = false;  // some event of it had no event_id
  bool isEnveloped = false;   // some event of it came in the specification's envelope: it need not keep its blocks as engines do
  bool countsCopies = false;  // each physical copy of a block is stored and removed by an event of its own
  u64 scope = 0;
  FlatMap names;
  FlatMap copies;  // by stream and block: one more than the further copies that the stream has of it
  std::vector<CacheGroup> groups;
  std::vector<u32> streams;
  std::unordered_set<u32> spaces;
  std::unordered_map<u64, u64> lastEventId;  // by stream and namespace
  std::unordered_set<u64> doubted;           // of the same: what a gap may have touched, see doubt.cc
  std::deque<ParkedEvent> park;
  std::unordered_set<u64> awaited;  // the parked events' parents
  u32 parkedBlocks = 0;
  std::string complaint;  // the last refusal in words
  struct Seen {
    u64 sequence = ~0ull, print = 0;
  };
  std::vector<Seen> seen;  // a ring of fingerprints of the last batches
  u64 weighed = 0;         // its share of Index::subscriptionBytes_
};

}  // namespace svc
