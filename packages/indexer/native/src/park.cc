// Parks stored events whose parent is unknown, up to a bound, until the parent comes; and checks a publisher's hashes.
#include <algorithm>

#include "index.h"

namespace svc {

void Index::parkEvent(Subscription& sub, const Event& event, u64 parent, const u64* names, u32 stream, u32 space, bool inheritsSalt, Outcomes& outcomes) {
  ParkedEvent parked;
  parked.parent = parent, parked.stream = stream, parked.space = space, parked.inheritsSalt = inheritsSalt;
  parked.names.assign(names, names + event.hashCount);
  parked.locals.assign(locals_.begin(), locals_.begin() + event.hashCount);
  park(sub, std::move(parked), outcomes);
}

void Index::park(Subscription& sub, ParkedEvent event, Outcomes& outcomes) {
  const u32 count = static_cast<u32>(event.names.size());
  if (count > maxParkedBlocks) {
    ++outcomes[ParkDropped];
    return;
  }
  while (!sub.park.empty() && (sub.park.size() >= maxParkedEvents || sub.parkedBlocks + count > maxParkedBlocks)) {
    sub.parkedBlocks -= static_cast<u32>(sub.park.front().names.size());
    sub.park.pop_front();
    ++outcomes[ParkDropped];
  }
  if (sub.awaited.size() > 2 * maxParkedEvents) {
    sub.awaited.clear();
    for (const ParkedEvent& parked : sub.park) sub.awaited.insert(parked.parent);
  }
  sub.awaited.insert(event.parent);
  event.gone.assign(count, false);
  sub.parkedBlocks += count;
  sub.park.push_back(std::move(event));
  ++outcomes[Parked];
}

// A block that is removed while its event is parked stays removed.
void Index::removeParked(Subscription& sub, u32 stream, const u64* names, u32 count) {
  if (sub.park.empty()) return;
  std::vector<u64> sorted(names, names + count);
  std::sort(sorted.begin(), sorted.end());
  for (auto& parked : sub.park) {
    if (parked.stream != stream && parked.stream != streams_[stream].twin) continue;
    for (std::size_t i = 0; i < parked.names.size(); ++i)
      if (std::binary_search(sorted.begin(), sorted.end(), parked.names[i])) parked.gone[i] = true;
  }
}

void Index::unpark(u32 id, Outcomes& outcomes) {
  Subscription& sub = subscriptions_[id];
  for (bool again = true; again;) {
    again = false;
    for (std::size_t i = 0; i < sub.park.size(); ++i) {
      const u32 parent = findParent(sub, sub.park[i].space, sub.park[i].parent);
      if (parent == 0) continue;
      ParkedEvent event = std::move(sub.park[i]);
      sub.park.erase(sub.park.begin() + static_cast<std::ptrdiff_t>(i));
      sub.parkedBlocks -= static_cast<u32>(event.names.size());
      again = true;
      ++outcomes[Unparked];
      if (event.sparse) {
        placeSparse(id, std::move(event), outcomes);
        break;
      }
      const bool isSameSalt = sub.salt.empty() || registeredSalt(spaces_[spaceOf(parent)].salt) == sub.salt;
      const u32 space = event.inheritsSalt && isSameSalt ? spaceOf(parent) : event.space;
      if (sub.spaces.insert(space).second) ++version_;
      u64 previous = arena_.sequence[parent];
      u32 before = parent;
      // Proceeds block by block, since some may have been removed while they were parked; the chain of hashes continues through them.
      for (std::size_t k = 0; k < event.names.size(); ++k) {
        previous = roll(previous, event.locals[k], seed_);
        if (event.gone[k]) {
          before = 0;
          continue;
        }
        store(id, event.stream, space, &previous, 1, &event.names[k], before, outcomes);
        if (!waiters_.empty()) joinWaiting(space, &event.names[k], &previous, 1);
        before = find(space, previous);
      }
      break;
    }
  }
}

// Compares hashes that claim to be the standard's with the tokens that they stand for.
void Index::judgeSeed(Subscription& sub, const Event& event, const Namespace& space, Outcomes& outcomes) {
  const u64 first = batch_.hashes[event.hashBegin];
  const bool root = !event.hasParent && !(event.hasBase && event.base > 0);
  if (!root && !event.hasParent) return;
  const u64 expected = root ? locals_[0] : roll(event.parent, locals_[0], seed_);
  if (first == expected) {
    sub.standard = true;
    ++outcomes[StandardHashes];
    return;
  }
  if (!event.standardNames) {
    ++outcomes[EngineHashes];
    return;
  }
  const u32* tokens = batch_.tokens.data() + event.tokenBegin;
  const std::string_view lora = space.lora.starts_with("n:") ? std::string_view(space.lora).substr(2) : std::string_view();
  const u64 salted = localHash(tokens, space.blockSize, saltedSeed(lora, space.salt, seed_));
  if (first == (root ? salted : roll(event.parent, salted, seed_))) {
    ++outcomes[StandardHashes];
    return;
  }
  ++outcomes[WrongSeed];
  std::string guess;
  for (u64 seed : {0ull, 1337ull, 42ull})
    if (seed != seed_ && root && localHash(tokens, space.blockSize, seed) == first) guess = "; they fit seed " + std::to_string(seed);
  sub.complaint = "the publisher's seq_hashes are not XXH3-64 of their tokens under seed " + std::to_string(seed_) + guess + "; set the same seed on both sides";
}

}  // namespace svc
