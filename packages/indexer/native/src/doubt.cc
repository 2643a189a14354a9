// What a gap in a publisher's batches can have touched, and what proves that it touched nothing.
//
// A lost batch may have removed any block that its publisher held, so whatever it held is uncertain from then on: it goes from its stream to
// the stream's twin, by the sets of holders, block by block nowhere. A twin's blocks count apart in answers.
//
//   stored ──▶ certain ──loss──▶ uncertain ──stored again──▶ certain
//                 │                  └──removed, cleared, too old──▶ gone
//                 └──removed, cleared──▶ gone
//
// Where events carry an event_id they are numbered one after the other within a stream (model, block size, salt, LoRA, tenant, backend,
// medium, rank, group, owner), so the next event of a stream tells: its number follows the last one known, then no event of this stream was
// lost, and its blocks are certain again; or it does not, then they are the twin's. Until it comes they are doubted: they count as uncertain
// ones do. Nothing is stored under a doubted stream before that, and an event that is older than the last one known proves nothing. A
// publisher that ever sent an event without a number may have lost another one, which no number tells: there all is uncertain.
#include <algorithm>
#include <map>

#include "index.h"

namespace svc {

void Index::lose(u32 id) {
  Subscription& sub = subscriptions_[id];
  forgetPending(id);
  // A store's objects are read again, and may be cut otherwise.
  std::vector<u32> shards;
  for (const u32 stream : sub.streams)
    if (streams_[stream].shard != 0) shards.push_back(stream);
  if (!shards.empty()) sets_.withdraw(shards, -1);
  forgetShards(sub);
  std::vector<u32> unnumbered;
  std::map<u32, std::vector<u32>> lost;  // by namespace
  const std::size_t before = sub.doubted.size();
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
      if (sub.lastEventId.contains(static_cast<u64>(stream) << 32 | space)) sub.doubted.insert(static_cast<u64>(stream) << 32 | space);
  }
  // Views hang on doubts alone: what is withdrawn goes from the sets.
  if (sub.unnumbered ? !sub.doubted.empty() : sub.doubted.size() != before) ++version_;
  if (sub.unnumbered) sub.doubted.clear();
  if (!unnumbered.empty()) makeUncertain(sub, unnumbered, -1);
  for (const auto& [space, streams] : lost) makeUncertain(sub, streams, space);
  dropNames(sub);
  // What waits was stored before the loss as well.
  for (ParkedEvent& parked : sub.park)
    if (!streams_[parked.stream].isUncertain && streams_[parked.stream].twin != Stream::noStream) parked.stream = streams_[parked.stream].twin;
  ++changes_;
}

void Index::makeUncertain(Subscription& sub, const std::vector<u32>& streams, std::int64_t space) {
  std::vector<HolderSets::Move> moves;
  for (const u32 stream : streams) moves.push_back({stream, twinOf(stream)});
  sets_.move(moves, space);
  // How many copies are left nobody knows.
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

// Their blocks are gone.
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
  return !sub.doubted.empty() || std::any_of(sub.streams.begin(), sub.streams.end(), [&](u32 stream) { return streams_[stream].isUncertain; });
}

// An event was lost within a batch, beside others that were taken in: their numbers prove nothing of it.
void Index::doubtAll(u32 id) { subscriptions_[id].unnumbered = true; }

void Index::settleDoubt(Subscription& sub, u32 stream, u32 space, const Event& event) {
  if (sub.doubted.empty()) return;
  const u64 key = static_cast<u64>(stream) << 32 | space;
  if (!sub.doubted.contains(key)) return;
  const auto last = sub.lastEventId.find(key);
  const bool numbered = event.hasEventId && last != sub.lastEventId.end();
  if (numbered && event.eventId <= last->second) return;
  sub.doubted.erase(key);
  ++version_;
  ++changes_;
  if (numbered && event.eventId == last->second + 1) return;
  makeUncertain(sub, {stream}, space);
  dropNames(sub);
}

// Names of a publisher's own that mean nothing any more.
void Index::dropNames(Subscription& sub) {
  sweepNames(sub);
  if (sub.ownNames && sub.names.size() == 0) {
    sub.names.clear();
    sub.ownNames = false;
  }
}

}  // namespace svc
