// A batch of KV events as one flat structure: all wire formats are read into it, and nothing is applied before everything is read.
#pragma once
#include <vector>

#include "msgpack_reader.h"

namespace svc {

enum class EventKind : u8 { Stored, Removed, Cleared, Unknown };

struct Event {
  EventKind kind = EventKind::Unknown;
  bool malformed = false;      // only this event; the frame is valid
  bool typed = false;          // a text names its kind
  bool named = false;          // came with `event_type`: the specification's envelope, all of whose dimensions count
  bool standardNames = false;  // hashes came as `seq_hashes`
  bool hasParent = false;
  bool hasBase = false;
  bool hasTokens = false;
  bool hasPairs = false;  // tokens came as pairs (bigram keys)
  bool hasLoraId = false;
  bool hasEventId = false;
  bool hasBlockSize = false;
  bool hasRank = false;
  bool hasMedium = false;
  bool hasGroup = false;
  bool keyed = false;  // a store's object whose key has an engine's block hash, see object_key.h
  bool continues = false;  // another part of the event before it, which was too large to be applied in one go
  u32 blockSize = 0;
  u32 rank = 0;
  u32 hashBegin = 0, hashCount = 0;    // in EventBatch::hashes
  u32 tokenBegin = 0, tokenCount = 0;  // in EventBatch::tokens
  u32 aheadBegin = 0, aheadRows = 0, ahead = 0;  // in EventBatch::lookahead; `ahead`: tokens after each block that its hash covers
  u64 base = 0;
  u64 parent = 0;
  u64 eventId = 0;
  u64 group = 0;   // of the engine's KV cache
  u64 window = 0;  // of that group, in tokens; 0: not given
  u64 loraNumber = 0;
  u64 shard = 0;  // of a store's object that is a part of a block (a rank's, a layer's); 0: the block itself
  // Texts are views of the payload; if `loraId` is empty, `loraNumber` counts.
  std::string_view model, lora, loraId, salt, tenant, backend, medium, spec, locality, owner, objectKey, keyHead, keyModel;
  const u8* extraBegin = nullptr;  // the elements of extra_keys, as msgpack
  const u8* extraEnd = nullptr;
  u64 extraCount = 0;
};

struct EventBatch {
  // The maximum number of blocks applied in one go: a larger event becomes several, each the child of the one before.
  static constexpr u32 partBlocks = 4096;
  static constexpr std::size_t mostEvents = 1 << 17;
  static constexpr u32 mostAhead = 16;

  double timestampMs = 0;
  bool hasRank = false;
  u32 rank = 0;
  u32 wholeEvents = 0;  // before splitting
  std::vector<Event> events;
  std::vector<u64> hashes;
  std::vector<u32> tokens, lookahead;

  // Returns false if the frame is malformed; nothing of it may be used then.
  bool read(const u8* begin, const u8* end);
  // Frees the memory of an unusually large batch.
  void shrink();

 private:
  void part();
  bool readEvent(MsgpackReader& in, Event& event);
  bool readArrayForm(MsgpackReader& in, u64 fields, Event& event);
  bool readMapForm(MsgpackReader& in, u64 fields, Event& event);
  bool readField(MsgpackReader& in, int field, Event& event);
  bool readHashes(MsgpackReader& in, Event& event);
  bool readLookahead(MsgpackReader& in, Event& event);
  bool readTokens(MsgpackReader& in, Event& event);
  void readObjectKey(Event& event);
};

// Converts an engine's hash in any of its forms to u64: unsigned, signed (two's complement), the last 8 bytes of a digest, or digits.
bool hashOf(const Head& head, u64& hash);

}  // namespace svc
