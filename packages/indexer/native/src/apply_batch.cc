// Applies a batch in slices: selects the next events and dispatches each by its kind.
#include <algorithm>
#include <cctype>

#include "index.h"

namespace svc {
namespace {

bool isRemote(std::string_view locality) {
  return locality.size() == 6 && std::equal(locality.begin(), locality.end(), "REMOTE", [](char a, char b) { return std::toupper(static_cast<u8>(a)) == b; });
}

}  // namespace

Taken Index::apply(u32 id, u64 sequence, const u8* payload, std::size_t size, Outcomes& outcomes) {
  outcomes.fill(0);
  Subscription& sub = subscriptions_[id];
  sub.seen[sequence % seenRing] = {sequence, XXH3_64bits(payload, size)};
  pending_ = nobody;
  if (!batch_.read(payload, payload + size)) return Taken::Malformed;
  if (isLong()) {
    // Later calls read the texts of the batch as well, so the payload is copied.
    kept_.assign(payload, payload + size);
    batch_.read(kept_.data(), kept_.data() + size);
  }
  tick();
  if (batch_.hasRank && batch_.rank != sub.rank && sub.kind == PublisherKind::Engine) outcomes[RankDiffers] = 1;
  outcomes[Events] = batch_.wholeEvents;
  pending_ = id;
  pendingAt_ = 0;
  return goOn(outcomes);
}

Taken Index::applyMore(u32 id, Outcomes& outcomes) {
  outcomes.fill(0);
  return pending_ == id ? goOn(outcomes) : Taken::Whole;
}

// True if one slice may not be enough for the batch.
bool Index::isLong() const {
  std::size_t blocks = batch_.events.size();
  for (const Event& event : batch_.events) blocks += event.hashCount;
  return blocks > sliceBlocks;
}

// Events that run out of memory are lost, and with them the knowledge whether the other blocks are still there.
Taken Index::goOn(Outcomes& outcomes) try {
  Subscription& sub = subscriptions_[pending_];
  limit_ = limitBlocks();
  sets_.collect();
  for (u32 blocks = 0; pendingAt_ < batch_.events.size() && blocks < sliceBlocks;) {
    const Event& event = batch_.events[pendingAt_++];
    blocks += 1 + event.hashCount;
    applyEvent(pending_, event, outcomes);
  }
  weigh(sub);
  if (pendingAt_ < batch_.events.size()) return Taken::More;
  endBatch();
  return Taken::Whole;
} catch (const std::bad_alloc&) {
  const u32 id = pending_;
  endBatch();
  ++outcomes[OverBudget];
  ++outcomes[LostRemoval];
  distrustNumbers(id);
  lose(id);
  return Taken::Whole;
}

void Index::endBatch() {
  pending_ = nobody;
  batch_.shrink();
  kept_ = {};
}

// Engines name the rank in each batch; the trailer of a store means nothing.
u32 Index::rankOf(const Subscription& sub, const Event& event) const {
  if (event.hasRank) return event.rank;
  return sub.kind == PublisherKind::Engine && batch_.hasRank ? batch_.rank : sub.rank;
}

int Index::seen(u32 id, u64 sequence, const u8* payload, std::size_t size) const {
  const auto& known = subscriptions_[id].seen[sequence % seenRing];
  if (known.sequence != sequence) return 0;
  return known.print == XXH3_64bits(payload, size) ? 1 : 2;
}

void Index::applyEvent(u32 id, const Event& event, Outcomes& outcomes) {
  // If the first part of an event was refused, its other parts are refused as well.
  if (event.continues && !taken_) return;
  taken_ = event.continues;
  if (!event.continues && !event.hasEventId) subscriptions_[id].unnumbered = true;
  if (event.named && !subscriptions_[id].isEnveloped) subscriptions_[id].isEnveloped = true, ++version_;
  if (event.kind == EventKind::Unknown && event.typed) ++outcomes[UnknownEvent];
  else if (event.malformed || event.kind == EventKind::Unknown) {
    ++outcomes[event.malformed ? MalformedEvent : UnknownEvent];
    // The event may have removed blocks that answers still have: the caller drops those at the end of the batch.
    if (event.kind != EventKind::Stored) ++outcomes[LostRemoval], distrustNumbers(id);
  }
  else if (event.kind == EventKind::Cleared) applyCleared(id, event, outcomes);
  else if (isRemote(event.locality)) ++outcomes[RemoteBlocks];
  // Only keys of engines say of which group a store's block is, so other blocks of a group behind the first are not a prefix.
  else if (subscriptions_[id].kind == PublisherKind::Store && event.group >= (event.keyed ? maxGroups : 1)) ++outcomes[OtherGroup];
  else if (event.keyed) applyKeyed(id, event, outcomes);
  else if (event.kind == EventKind::Stored) applyStored(id, event, outcomes);
  else applyRemoved(id, event, outcomes);
}

}  // namespace svc
