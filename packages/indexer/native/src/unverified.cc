// Tracks the blocks that a gap in a publisher's batches may have affected, and the events that prove them unaffected.
//
// A lost batch may have removed any block that its publisher had, so all of them are uncertain from then on: they move from their stream to
// the stream's twin, by changing sets of holders and not block by block. A twin's blocks count separately in answers.
//
//   stored ──▶ certain ──loss──▶ uncertain ──stored again──▶ certain
//                 │                  └──removed, cleared, too old──▶ gone
//                 └──removed, cleared──▶ gone
//
// Events with an event_id are numbered consecutively within a stream (model, block size, salt, LoRA, tenant, backend, medium, rank, group,
// owner), so the stream's next event decides: if its number follows the last known one, no event of this stream was lost, and its blocks
// are certain again; otherwise they move to the twin. Until then the stream is unverified: its blocks count as uncertain, nothing is stored
// under it, and an event older than the last known one proves nothing. A publisher that ever sent an event without a number may have lost
// another such event, which no number reveals: all of its blocks become uncertain.
#include <algorithm>
#include <map>

#include "index.h"

namespace svc {

void Index::lose(u32 id) {
  Subscription& sub = subscriptions_[id];
  forgetPending(id);
  // A store's objects are read again, and may be split into other shards.
  std::vector<u32> shards;
  for (const u32 stream : sub.streams)
    if (streams_[stream].shard != 0) shards.push_back(stream);
  if (!shards.empty()) sets_.withdraw(shards, -1);
  forgetShards(sub);
  std::vector<u32> unnumbered;
  std::map<u32, std::vector<u32>> lost;  // by namespace
  const std::size_t before = sub.unverified.size();
  for (const u32 stream : sub.streams) {
    if (streams_[stream].isUncertain) continue;
    if (sub.unnumbered) {
      unnumbered.push_back(stream);
      continue;
    }
    std::vector<u32> without;
    for (const u32 space : sub.spaces)
      if (!sub.lastEventId.contains(static_cast<u64>(stream) << 32 | space)) without.push_back(space);
    if (without.size() == sub.spaces.size()) {
      unnumbered.push_back(stream);
      continue;
    }
    for (const u32 space : without) lost[space].push_back(stream);
    for (const u32 space : sub.spaces)
      if (sub.lastEventId.contains(static_cast<u64>(stream) << 32 | space)) sub.unverified.insert(static_cast<u64>(stream) << 32 | space);
  }
  // Views depend only on unverified streams here; withdrawn streams disappear from the sets.
  if (sub.unnumbered ? !sub.unverified.empty() : sub.unverified.size() != before) ++version_;
  if (sub.unnumbered) sub.unverified.clear();
  if (!unnumbered.empty()) makeUncertain(sub, unnumbered, -1);
  for (const auto& [space, streams] : lost) makeUncertain(sub, streams, space);
  dropNames(sub);
  // Parked events were stored before the loss as well.
  for (ParkedEvent& parked : sub.park)
    if (!streams_[parked.stream].isUncertain && streams_[parked.stream].twin != Stream::noStream) parked.stream = streams_[parked.stream].twin;
  ++changes_;
}

void Index::makeUncertain(Subscription& sub, const std::vector<u32>& streams, std::int64_t space) {
  std::vector<HolderSets::Move> moves;
  for (const u32 stream : streams) moves.push_back({stream, twinOf(stream)});
  sets_.move(moves, space);
  // The number of remaining copies is unknown.
  dropCopies(sub, streams, space);
}

u32 Index::twinOf(u32 stream) {
  if (streams_[stream].twin != Stream::noStream) return streams_[stream].twin;
  Subscription& sub = subscriptions_[streams_[stream].subscription];
  if (sub.streams.size() >= maxStreamsEach) return HolderSets::nowhere;
  u32 twin = 0;
  while (twin < streams_.size() && streams_[twin].active) ++twin;
  if (twin == maxStreams) return HolderSets::nowhere;
  if (twin == streams_.size()) streams_.emplace_back();
  streams_[twin] = streams_[stream];
  streams_[twin].isUncertain = true;
  streams_[twin].twin = stream;
  streams_[stream].twin = twin;
  sub.streams.push_back(twin);
  ++version_;
  return twin;
}

void Index::forgetUncertain(u32 id) {
  Subscription& sub = subscriptions_[id];
  std::vector<u32> twins;
  for (const u32 stream : sub.streams)
    if (streams_[stream].isUncertain) twins.push_back(stream);
  if (twins.empty()) return;
  sets_.withdraw(twins, -1);
  dropTwins(sub);
  dropNames(sub);
  ++changes_;
}

// Removes the twins, whose blocks are gone.
void Index::dropTwins(Subscription& sub) {
  std::erase_if(sub.park, [&](const ParkedEvent& parked) {
    const bool hit = streams_[parked.stream].isUncertain;
    if (hit) sub.parkedBlocks -= static_cast<u32>(parked.names.size());
    return hit;
  });
  std::erase_if(sub.streams, [&](u32 stream) {
    if (!streams_[stream].isUncertain) return false;
    if (streams_[stream].twin != Stream::noStream) streams_[streams_[stream].twin].twin = Stream::noStream;
    streams_[stream] = {};
    ++version_;
    return true;
  });
}

bool Index::hasUncertain(u32 id) const {
  const Subscription& sub = subscriptions_[id];
  return !sub.unverified.empty() || std::any_of(sub.streams.begin(), sub.streams.end(), [&](u32 stream) { return streams_[stream].isUncertain; });
}

// An event was lost within a batch whose other events were applied, so later numbers prove nothing about it.
void Index::distrustNumbers(u32 id) { subscriptions_[id].unnumbered = true; }

void Index::settleUnverified(Subscription& sub, u32 stream, u32 space, const Event& event) {
  if (sub.unverified.empty()) return;
  const u64 key = static_cast<u64>(stream) << 32 | space;
  if (!sub.unverified.contains(key)) return;
  const auto last = sub.lastEventId.find(key);
  const bool numbered = event.hasEventId && last != sub.lastEventId.end();
  if (numbered && event.eventId <= last->second) return;
  sub.unverified.erase(key);
  ++version_;
  ++changes_;
  if (numbered && event.eventId == last->second + 1) return;
  makeUncertain(sub, {stream}, space);
  dropNames(sub);
}

// Drops a publisher's own names that mean nothing any more.
void Index::dropNames(Subscription& sub) {
  sweepNames(sub);
  if (sub.ownNames && sub.names.size() == 0) {
    sub.names.clear();
    sub.ownNames = false;
  }
}

}  // namespace svc
