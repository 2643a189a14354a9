// Starts, clears and ends subscriptions, and registers their streams.
#include <algorithm>

#include "index.h"

namespace svc {

std::int64_t Index::internStream(u32 id, const StreamName& wanted) {
  Subscription& sub = subscriptions_[id];
  for (u32 stream : sub.streams)
    if (streams_[stream].is(wanted, media_[streams_[stream].medium])) return stream;
  if (wanted.shard != 0 && wanted.shard != Stream::wholeShard) {
    // No block has a shard of a kind that was never seen before, so no block is complete any more.
    StreamName all = wanted;
    all.shard = Stream::wholeShard;
    const std::int64_t whole = internStream(id, all);
    if (whole < 0) return -1;
    sets_.withdraw({static_cast<u32>(whole)}, -1);
  }
  if (sub.streams.size() >= maxStreamsEach) return -1;
  auto name = std::find(media_.begin(), media_.end(), wanted.medium);
  if (name == media_.end()) {
    if (media_.size() >= maxMedia) return -1;
    name = media_.insert(media_.end(), std::string(wanted.medium));
  }
  u32 stream = 0;
  while (stream < streams_.size() && streams_[stream].active) ++stream;
  if (stream == maxStreams) return -1;
  if (stream == streams_.size()) streams_.emplace_back();
  Stream& fresh = streams_[stream] = {};
  fresh.subscription = id;
  fresh.rank = wanted.rank;
  fresh.medium = static_cast<u16>(name - media_.begin());
  fresh.active = true;
  fresh.group = wanted.group;
  fresh.owner = wanted.owner;
  fresh.shard = wanted.shard;
  fresh.backend = wanted.backend;
  sub.streams.push_back(stream);
  ++version_;
  return stream;
}

u32 Index::subscribe(Subscription description) {
  u32 id = 0;
  while (id < subscriptions_.size() && subscriptions_[id].active) ++id;
  if (id == subscriptions_.size()) subscriptions_.emplace_back();
  description.active = true;
  description.scope = scopeSeed(description.tenant, description.model, description.blockSize);
  description.seen.resize(seenRing);
  subscriptions_[id] = std::move(description);
  weigh(subscriptions_[id]);
  ++version_;
  return id;
}

void Index::setDead(u32 id, bool dead) {
  Subscription& sub = subscriptions_[id];
  if (sub.dead == dead) return;
  sub.dead = dead;
  ++version_;
}

void Index::unsubscribe(u32 id) {
  clear(id);
  for (u32 stream : subscriptions_[id].streams) streams_[stream] = {};
  subscriptionBytes_ -= subscriptions_[id].weighed;
  subscriptions_[id] = {};
  ++version_;
}

void Index::clear(u32 id) {
  Subscription& sub = subscriptions_[id];
  forgetPending(id);
  purge(sub.streams, -1);
  forgetShards(sub);
  dropTwins(sub);
  sub.names.clear();
  sub.copies.clear();
  sub.groups.clear();
  sub.ownNames = false;
  sub.park.clear();
  sub.awaited.clear();
  sub.parkedBlocks = 0;
  sub.keyHead.clear();
  sub.waiting.clear();
  std::erase(waiters_, id);
  sub.chunks.clear();
  if (!sub.unverified.empty() || !sub.spaces.empty()) ++version_;
  sub.unverified.clear();
  sub.unnumbered = sub.evicted = sub.isEnveloped = false;
  sub.lastEventId.clear();
  sub.spaces.clear();
  sub.standard = false;
  sub.seen.assign(seenRing, {});
}

}  // namespace svc
