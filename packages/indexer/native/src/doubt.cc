// What a gap in a publisher's batches can have touched, and what proves that it touched nothing.
//
// A lost batch may have removed any block that its publisher held, so whatever it held is not answered from then on. Blocks whose
// events carry no event_id are dropped at once: nothing that comes later says that they are still there. Where events do carry one
// they are numbered one after the other within a stream (model, block size, salt, LoRA, tenant, backend, medium, rank), so the next
// event of a stream tells: its number follows the last one known, then no event of this stream was lost, and its blocks are answered
// again; or it does not, then they are dropped. Until it comes they are doubted: kept, and not answered. Nothing is stored under a
// doubted stream before that, and an event that is older than the last one known proves nothing. A publisher that ever sent an event
// without a number may have lost another one, which no number tells: there all is dropped.
#include <map>

#include "index.h"

namespace svc {

void Index::lose(u32 id) {
  Subscription& sub = subscriptions_[id];
  forgetPending(id);
  forgetShards(sub);
  std::vector<u32> unnumbered;
  std::map<u32, std::vector<u32>> lost;  // by namespace
  const std::size_t before = sub.doubted.size();
  for (const u32 stream : sub.streams) {
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
  if (!unnumbered.empty()) sets_.withdraw(unnumbered, -1);
  for (const auto& [space, streams] : lost) sets_.withdraw(streams, space);
  dropNames(sub);
  sub.park.clear();
  sub.awaited.clear();
  sub.parkedBlocks = 0;
  ++changes_;
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
  sets_.withdraw({stream}, space);
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
