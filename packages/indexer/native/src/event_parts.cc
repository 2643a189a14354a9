// Splits an event of very many blocks, so that applying one part delays queries only briefly.
#include <algorithm>

#include "event_batch.h"

namespace svc {

void EventBatch::shrink() {
  constexpr std::size_t kept = 1 << 20;
  if (hashes.capacity() + tokens.capacity() / 2 + lookahead.capacity() / 2 + events.capacity() * (sizeof(Event) / 8) <= kept) return;
  events = {};
  hashes = {};
  tokens = {};
  lookahead = {};
}

// Reads the lookahead tokens of each block, which its hash covers in addition to its own; all blocks have the same number of them.
bool EventBatch::readLookahead(MsgpackReader& in, Event& event) {
  const Head list = in.next();
  if (list.kind == Kind::Nil) return true;
  if (list.kind != Kind::Array) return false;
  event.aheadBegin = static_cast<u32>(lookahead.size());
  for (u64 i = 0; i < list.number; ++i) {
    const Head row = in.next();
    if (row.kind != Kind::Array) return false;
    const std::size_t from = lookahead.size();
    lookahead.resize(from + row.number);
    if (!in.tokens(row.number, lookahead.data() + from)) return false;
    if (i == 0) event.ahead = static_cast<u32>(row.number);
    event.malformed |= row.number != event.ahead || row.number > mostAhead;
  }
  event.aheadRows = static_cast<u32>(list.number);
  return true;
}

void EventBatch::part() {
  const auto large = [](const Event& event) { return event.hashCount > partBlocks && !event.malformed; };
  if (std::none_of(events.begin(), events.end(), large)) return;
  std::vector<Event> parts;
  for (const Event& event : events) {
    const u32 each = event.hasTokens ? event.tokenCount / event.hashCount : 0;
    // An event whose tokens do not fit its blocks is refused as a whole, so it is not split.
    if (!large(event) || event.tokenCount != static_cast<u64>(each) * event.hashCount) {
      parts.push_back(event);
      continue;
    }
    MsgpackReader extras(event.extraBegin, event.extraEnd);
    for (u32 from = 0; from < event.hashCount; from += partBlocks) {
      Event one = event;
      one.hashBegin += from;
      one.hashCount = std::min(partBlocks, event.hashCount - from);
      one.tokenBegin += from * each;
      one.tokenCount = one.hashCount * each;
      one.aheadBegin += from * event.ahead;
      one.aheadRows = one.hashCount;
      if (event.extraBegin != nullptr) {
        one.extraBegin = extras.at();
        one.extraCount = event.extraCount > from ? event.extraCount - from : 0;
        for (u64 i = std::min<u64>(one.extraCount, one.hashCount); i > 0; --i) extras.skip();
      }
      if (from > 0) {
        one.continues = true;
        one.hasEventId = false;
        one.base += from;
        if (event.kind == EventKind::Stored) one.hasParent = true, one.parent = hashes[one.hashBegin - 1];
      }
      parts.push_back(one);
    }
  }
  events.swap(parts);
}

}  // namespace svc
