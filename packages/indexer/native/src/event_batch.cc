// Reads `[timestamp, [events], rank]` with events in array or map form, with the fields of every engine release in use.
#include "event_batch.h"
#include "event_fields.h"
#include "object_key.h"

#include <charconv>

namespace svc {
namespace {

EventKind kindOf(std::string_view name) {
  if (name == "BlockStored" || name == "stored") return EventKind::Stored;
  if (name == "BlockRemoved" || name == "removed") return EventKind::Removed;
  if (name == "AllBlocksCleared" || name == "cleared") return EventKind::Cleared;
  return EventKind::Unknown;
}

// Nil and absent are equivalent. A wrong type makes only the event malformed, not the frame.
void readText(const Head& head, std::string_view& out, Event& event) {
  if (head.kind == Kind::Str) out = head.text();
  else if (head.kind != Kind::Nil) event.malformed = true;
}

bool readNumber(const Head& head, u64 most, u64& out, Event& event) {
  if (head.kind == Kind::Nil) return false;
  const bool sound = (head.kind == Kind::Uint || (head.kind == Kind::Int && static_cast<std::int64_t>(head.number) >= 0)) && head.number <= most;
  if (!sound) event.malformed = true;
  else out = head.number;
  return sound;
}

}  // namespace

bool hashOf(const Head& head, u64& hash) {
  switch (head.kind) {
    case Kind::Uint:
    case Kind::Int: hash = head.number; return true;
    case Kind::Bin: {
      if (head.number == 0) return false;
      hash = 0;
      const u64 from = head.number > 8 ? head.number - 8 : 0;
      for (u64 i = from; i < head.number; ++i) hash = hash << 8 | head.body[i];
      return true;
    }
    case Kind::Str: {
      std::string_view text = head.text();
      const bool hex = text.starts_with("0x") || text.starts_with("0X");
      if (hex) text.remove_prefix(2);
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, hex ? 16 : 10);
      return error == std::errc{} && end == text.data() + text.size() && !text.empty();
    }
    default: return false;
  }
}

bool EventBatch::read(const u8* begin, const u8* end) {
  events.clear();
  hashes.clear();
  tokens.clear();
  lookahead.clear();
  hasRank = false;
  timestampMs = 0;
  MsgpackReader in(begin, end);
  const Head frame = in.next();
  if (frame.kind != Kind::Array || frame.number < 2) return false;
  const Head time = in.next();
  // Engines send seconds as a float, the store master milliseconds as an integer.
  if (time.kind == Kind::Float) timestampMs = time.real < 1e11 ? time.real * 1000 : time.real;
  else if (time.kind == Kind::Uint) timestampMs = static_cast<double>(time.number) * (time.number < 100000000000ull ? 1000 : 1);
  else if (time.kind != Kind::Nil) return false;
  const Head list = in.next();
  if (list.kind != Kind::Array || list.number > mostEvents) return false;
  for (u64 i = 0; i < list.number; ++i) {
    Event event;
    if (!readEvent(in, event)) return false;
    // LMCache names 0 as the parent of a chain's first block.
    if (!event.named && event.parent == 0) event.hasParent = false;
    if (event.hashCount == 0 && !event.objectKey.empty()) readObjectKey(event);
    events.push_back(event);
  }
  for (u64 i = 2; i < frame.number; ++i) {
    if (i > 2) {
      if (!in.skip()) return false;
      continue;
    }
    const Head trailer = in.next();
    if (trailer.kind == Kind::Uint && trailer.number <= 0xffffffffull) {
      hasRank = true;
      rank = static_cast<u32>(trailer.number);
    } else if (trailer.kind != Kind::Nil) {
      return false;
    }
  }
  if (!in.done()) return false;
  wholeEvents = static_cast<u32>(events.size());
  part();
  return true;
}

bool EventBatch::readEvent(MsgpackReader& in, Event& event) {
  const Head head = in.next();
  if (head.kind == Kind::Map) return readMapForm(in, head.number, event);
  if (head.kind != Kind::Array || head.number == 0) return false;
  return readArrayForm(in, head.number, event);
}

bool EventBatch::readArrayForm(MsgpackReader& in, u64 fields, Event& event) {
  const Head tag = in.next();
  if (tag.kind != Kind::Str) return false;
  event.kind = kindOf(tag.text());
  const Field* order = event.kind == EventKind::Removed ? removedFields : storedFields;
  const u64 known = event.kind == EventKind::Stored ? std::size(storedFields) : event.kind == EventKind::Removed ? std::size(removedFields) : 0;
  for (u64 i = 0; i + 1 < fields; ++i) {
    if (!readField(in, i < known ? order[i] : Ignored, event)) return false;
  }
  return true;
}

bool EventBatch::readMapForm(MsgpackReader& in, u64 fields, Event& event) {
  for (u64 i = 0; i < fields; ++i) {
    const Head key = in.next();
    if (key.kind != Kind::Str) return false;
    if (!readField(in, fieldOf(key.text()), event)) return false;
  }
  return true;
}

bool EventBatch::readField(MsgpackReader& in, int field, Event& event) {
  switch (field) {
    case Ignored: return in.skip();
    case SeqHashes:
      // Nil is equivalent to absent, so the alias counts.
      if (in.left() > 0 && *in.at() == 0xc0) return in.skip();
      event.standardNames = true;
      return readHashes(in, event);
    case BlockHashes:
      // The alias repeats `seq_hashes`, perhaps as signed numbers.
      return event.standardNames ? in.skip() : readHashes(in, event);
    case TokenIds: return readTokens(in, event);
    case Lookahead: return readLookahead(in, event);
    case Extras: {
      const u8* start = in.at();
      const Head list = in.next();
      if (list.kind != Kind::Array) {
        in = MsgpackReader(start, in.at() + in.left());
        return in.skip();
      }
      event.extraBegin = in.at();
      event.extraCount = list.number;
      for (u64 i = 0; i < list.number; ++i)
        if (!in.skip()) return false;
      event.extraEnd = in.at();
      return true;
    }
    default: break;
  }
  const u8* start = in.at();
  const Head head = in.next();
  if (head.kind == Kind::Bad) return false;
  if (head.kind == Kind::Array || head.kind == Kind::Map) {
    // This is not a scalar where one is expected: the event is malformed, but the frame may still be valid.
    event.malformed = true;
    MsgpackReader again(start, start + (in.left() + static_cast<std::size_t>(in.at() - start)));
    if (!again.skip()) return false;
    in = again;
    return true;
  }
  u64 value = 0;
  switch (field) {
    case Type:
      if (head.kind == Kind::Str && event.kind == EventKind::Unknown) event.kind = kindOf(head.text());
      event.typed |= head.kind == Kind::Str;
      return true;
    case EventType:
      if (head.kind != Kind::Str) return true;
      event.kind = kindOf(head.text());
      event.typed = event.named = true;
      return true;
    case ParentHash:
      if (head.kind == Kind::Nil) return true;
      event.hasParent = hashOf(head, event.parent);
      event.malformed |= !event.hasParent;
      return true;
    case BlockSize:
      event.hasBlockSize = readNumber(head, 0xffffffff, value, event);
      event.blockSize = static_cast<u32>(value);
      return true;
    case LoraId:
      if (head.kind == Kind::Str) event.loraId = head.text();
      event.hasLoraId = (head.kind == Kind::Str && head.number > 0) || readNumber(head, ~0ull, event.loraNumber, event);
      return true;
    case Medium:
      readText(head, event.medium, event);
      event.hasMedium = head.kind == Kind::Str;
      return true;
    case LoraName: readText(head, event.lora, event); return true;
    case Salt: readText(head, event.salt, event); return true;
    case Tenant: readText(head, event.tenant, event); return true;
    case Backend: readText(head, event.backend, event); return true;
    case Model: readText(head, event.model, event); return true;
    case Spec: readText(head, event.spec, event); return true;
    case Locality: readText(head, event.locality, event); return true;
    case GroupIdx: event.hasGroup = readNumber(head, ~0u - 1, event.group, event); return true;
    case Window: readNumber(head, ~0u, event.window, event); return true;
    case Owner: readText(head, event.owner, event); return true;
    case Object: readText(head, event.objectKey, event); return true;
    case EventId: event.hasEventId = readNumber(head, ~0ull, event.eventId, event); return true;
    case Rank:
      event.hasRank = readNumber(head, 0xffffffff, value, event);
      event.rank = static_cast<u32>(value);
      return true;
    case TpRank: case HeadRank: case PcpRank: case DcpRank: case PpRank: case Layer:
      // The fields come in any order, so their mixed values are summed.
      if (readNumber(head, 0xffffffff, value, event)) event.shard += mix(static_cast<u64>(field) << 32 | value) >> 1;
      return true;
    case Base: event.hasBase = readNumber(head, ~0ull, event.base, event); return true;
    default: return true;
  }
}

// The key names the rank and the group, as a store that splits its blocks does by members of the event.
void EventBatch::readObjectKey(Event& event) {
  ObjectKey key;
  if (!ObjectKey::read(event.objectKey, key)) return;
  event.keyed = true;
  event.keyHead = key.head;
  event.keyModel = key.model;
  event.group = key.group;
  event.shard = 0;
  for (std::size_t i = 0; i < std::size(key.ranks); ++i) event.shard += mix(u64{i + 1} << 32 | key.ranks[i]) >> 1;
  event.hashBegin = static_cast<u32>(hashes.size());
  event.hashCount = 1;
  hashes.push_back(key.hash);
}

bool EventBatch::readHashes(MsgpackReader& in, Event& event) {
  const u8* start = in.at();
  const Head list = in.next();
  event.hashBegin = static_cast<u32>(hashes.size());
  event.hashCount = 0;
  if (list.kind == Kind::Nil) return true;
  if (list.kind != Kind::Array) {
    event.malformed = true;
    in = MsgpackReader(start, in.at() + in.left());
    return in.skip();
  }
  for (u64 i = 0; i < list.number; ++i) {
    const Head head = in.next();
    u64 hash = 0;
    if (head.kind == Kind::Bad || head.kind == Kind::Array || head.kind == Kind::Map) return false;
    if (!hashOf(head, hash)) event.malformed = true;
    hashes.push_back(hash);
  }
  event.hashCount = static_cast<u32>(list.number);
  return true;
}

bool EventBatch::readTokens(MsgpackReader& in, Event& event) {
  const u8* start = in.at();
  const Head list = in.next();
  if (list.kind == Kind::Nil) return true;
  if (list.kind == Kind::Array) {
    event.tokenBegin = static_cast<u32>(tokens.size());
    const u8* first = in.at();
    const bool pairs = list.number > 0 && (*first == 0x92);
    if (!pairs) {
      tokens.resize(tokens.size() + list.number);
      if (in.tokens(list.number, tokens.data() + event.tokenBegin)) {
        event.tokenCount = static_cast<u32>(list.number);
        event.hasTokens = list.number > 0;
        return true;
      }
      tokens.resize(event.tokenBegin);
    } else {
      event.hasPairs = event.hasTokens = true;
      for (u64 i = 0; i < list.number; ++i) {
        u32 pair[2];
        const Head head = in.next();
        if (head.kind != Kind::Array || head.number != 2 || !in.tokens(2, pair)) return false;
        tokens.push_back(pair[0]);
        // The window of the last pair extends one token further.
        if (i + 1 == list.number) tokens.push_back(pair[1]);
      }
      event.tokenCount = static_cast<u32>(list.number);
      return true;
    }
  }
  event.malformed = true;
  in = MsgpackReader(start, in.at() + in.left());
  return in.skip();
}

}  // namespace svc
