// Recovery of requests whose route broke: the one that caused the break fails, and the others are retried.
#include "engine.h"

namespace svc {

namespace {
/** The limit of consecutive connections without a single acknowledgement; beyond it the peer is given up. */
constexpr int MAX_EMPTY_CONNECTIONS = 3;
/** The minimum interval between reads of a peer's record while its connections break. */
constexpr uint64_t REFRESH_EVERY_MS = 50;
/** The silence after which a peer with pending requests is probed: some providers never report that a peer is gone. */
constexpr uint64_t SILENCE_MS = 200;
/** A live peer answers a probe within ANSWER_MS. A silent one may be stopped for long, so it is probed again only after ASK_AGAIN_MS. */
constexpr uint64_t ANSWER_MS = 500, ASK_AGAIN_MS = 2000;
/** The time a device needs to notice a broken connection and open another. */
constexpr uint64_t RECONNECT_MS = 50;

std::string about(const Slice& slice) {
  return (slice.segment != nullptr ? "peer " + slice.segment->name + ", " : "") + (slice.write ? "write" : "read") + " of " + rangeText(slice.remote, slice.length) + ": ";
}

/** Removes and returns the slices past their deadline. */
std::vector<Slice> takeLate(std::vector<Slice>& slices) {
  std::vector<Slice> late;
  const uint64_t now = nowNs();
  std::erase_if(slices, [&](const Slice& slice) {
    if (now >= slice.deadlineNs) late.push_back(slice);
    return now >= slice.deadlineNs;
  });
  return late;
}
}  // namespace

void Engine::failLate(std::vector<Slice>& slices, Path path, const std::string& trouble) {
  for (const auto& slice : takeLate(slices)) {
    metrics.timeouts.fetch_add(1, std::memory_order_relaxed);
    fail(slice, path, about(slice) + "timed out: " + trouble);
  }
}

std::shared_ptr<WaitingSlices> Engine::waitWith(std::vector<Slice> slices, Path path, std::string trouble, std::vector<SegmentRef> segments) {
  for (const auto& slice : slices) loops_[0]->tickBy(slice.deadlineNs);
  auto waiting = std::make_shared<WaitingSlices>();
  waiting->segments = std::move(segments);
  waiting->slices = std::move(slices);
  waiting->path = path;
  waiting->trouble = std::move(trouble);
  std::lock_guard lock(waitingMutex_);
  waiting_.push_back(waiting);
  return waiting;
}

void Engine::expireWaiting() {
  std::vector<std::shared_ptr<WaitingSlices>> all;
  {
    std::lock_guard lock(waitingMutex_);
    std::erase_if(waiting_, [&](const auto& weak) {
      auto one = weak.lock();
      if (one) all.push_back(one);
      return one == nullptr;
    });
  }
  for (const auto& waiting : all) {
    std::vector<Slice> late;
    {
      std::lock_guard lock(waiting->mutex);
      late = takeLate(waiting->slices);
      for (const auto& slice : waiting->slices) loops_[0]->tickBy(slice.deadlineNs);
    }
    failLate(late, waiting->path, waiting->trouble);
  }
}

void Engine::broke(SegmentID id, const RouteRef& route, Unfinished left) {
  SegmentRef segment = this->segment(id);
  std::vector<Slice> slices = std::exchange(left.slices, {});
  // The segment may have been closed meanwhile.
  for (auto& slice : slices) slice.segment = segment.get();
  if (!slices.empty()) slices.front().atHead = true;
  failLate(slices, route->path(), left.trouble);
  if (slices.empty()) return;
  auto waiting = waitWith(std::move(slices), route->path(), left.trouble, {segment});
  auto work = [this, segment, route, left = std::move(left), waiting] { recover(segment, *route, left, waiting); };
  if (!segment || !pool.post(segment->id, work)) work();
}

std::vector<Slice> Engine::selectRetries(Segment& segment, const Route& route, const Unfinished& left, const std::shared_ptr<WaitingSlices>& waiting, uint64_t deadlineNs) {
  const Path path = route.path();
  ViewRef before = segment.current();
  bool fresh = !stopping_ && refresh(segment, left.timedOut ? 1000 : REFRESH_EVERY_MS, RPC_MS, deadlineNs);
  ViewRef view = segment.current();
  RouteRef next = view->route(path);
  bool moved = fresh && next && (next.get() != &route || !sameEngine(*view, *before));
  std::vector<Slice> slices = waiting->take(), again;
  failLate(slices, path, left.trouble);
  for (auto& slice : slices) {
    auto end = [&](const std::string& why) { fail(slice, path, about(slice) + why); };
    const bool first = std::exchange(slice.atHead, false);
    uint8_t &attempts = slice.attempts, maxAttempts = slice.maxAttempts;
    if (!next || stopping_) end(stopping_ ? "the engine is stopping" : view->whyNot(path));
    // A restarted peer is a new peer: earlier failures say nothing about it.
    else if (moved && attempts < maxAttempts) {
      if (first) attempts++;
      again.push_back(slice);
    } else if (left.connectFailed) {
      if (++attempts >= maxAttempts || maxAttempts <= 2) end(left.trouble);
      else again.push_back(slice);
    } else if (first && (left.refused || ++attempts >= maxAttempts)) end(left.trouble);
    else again.push_back(slice);
  }
  return again;
}

void Engine::recover(const SegmentRef& segment, const Route& route, const Unfinished& left, const std::shared_ptr<WaitingSlices>& waiting) {
  if (!segment) {
    for (const auto& slice : waiting->take()) fail(slice, route.path(), about(slice) + left.trouble);
    return;
  }
  auto again = selectRetries(*segment, route, left, waiting, 0);
  if (auto next = segment->current()->route(route.path()); next && !again.empty()) next->take(again, Drive::Engine, 0);
  for (const auto& slice : again) fail(slice, route.path(), "peer " + segment->name + ": " + segment->current()->whyNot(route.path()));
}

void Engine::recoverHere(Segment& segment, RouteRef route, Unfinished left, uint64_t deadlineNs) {
  const Path path = route->path();
  for (int empty = 0; !left.slices.empty();) {
    empty = left.acknowledged == 0 && !left.refused ? empty + 1 : 0;
    std::vector<Slice> slices = std::exchange(left.slices, {});
    slices.front().atHead = true;
    failLate(slices, path, left.trouble);
    if (slices.empty()) return;
    auto again = selectRetries(segment, *route, left, waitWith(std::move(slices), path, left.trouble, {segment.shared_from_this()}), deadlineNs);
    if (again.empty()) return;
    route = segment.current()->route(path);
    if (!route || empty >= MAX_EMPTY_CONNECTIONS) {
      const std::string why = route ? left.trouble : segment.current()->whyNot(path);
      for (const auto& slice : again) fail(slice, path, about(slice) + why);
      return;
    }
    left = route->take(again, Drive::Caller, deadlineNs);
  }
}

void Engine::reread(const SegmentRef& segment) {
  if (segment->rereading.exchange(true)) return;
  auto work = [this, segment] {
    refresh(*segment, REFRESH_EVERY_MS);
    segment->rereading = false;
  };
  if (!pool.post(segment->id, work)) segment->rereading = false;
}

void Engine::gaveUp(SegmentID id, const RouteRef& route, Slice slice, const std::string& error) {
  SegmentRef segment = stopping_ ? nullptr : this->segment(id);
  slice.segment = segment.get();
  // The buffer pointer belongs to a view that may have been released.
  slice.buffer = nullptr;
  const std::string why = "peer " + route->segmentName + ", " + rangeText(slice.remote, slice.length) + ": " + error;
  if (!segment || nowNs() >= slice.deadlineNs) return fail(slice, route->path(), why);
  std::vector<Slice> one{slice};
  ViewRef view = segment->current();
  for (const auto& way : view->ways) {
    if (one.empty() || way.path <= route->path() || !way.route || !way.route->usable()) continue;
    way.route->take(one, Drive::Engine, slice.deadlineNs);
  }
  if (one.empty()) {
    metrics.of(route->path()).fallbacks.fetch_add(1, std::memory_order_relaxed);
    return reread(segment);
  }
  {
    std::lock_guard lock(route->strandedMutex);
    route->stranded.emplace_back(slice, why);
    if (route->stranded.size() > 1) return;
  }
  auto work = [this, segment, route] { recoverStranded(segment, route); };
  if (!pool.post(segment->id, work)) work();
}

void Engine::recoverStranded(const SegmentRef& segment, const RouteRef& before) {
  bool fresh = !stopping_ && refresh(*segment, REFRESH_EVERY_MS);
  if (fresh && !stopping_ && segment->current()->route(before->path()) == before) usleep(RECONNECT_MS * 1000);
  std::vector<std::pair<Slice, std::string>> stranded;
  {
    std::lock_guard lock(before->strandedMutex);
    stranded.swap(before->stranded);
  }
  // The peer may have restarted, or another request may have broken the connection, which fails all requests in flight.
  bool there = fresh && segment->current()->route(before->path()) != nullptr;
  std::vector<Slice> again;
  for (auto& [slice, why] : stranded) {
    if (there && ++slice.attempts < slice.maxAttempts) again.push_back(slice);
    else fail(slice, before->path(), why);
  }
  if (!again.empty()) dispatch(again, Drive::Engine, again.front().deadlineNs, false);
}

void Engine::watchSilent() {
  if (!watched_) return;
  std::vector<std::pair<SegmentRef, RouteRef>> silent;
  std::vector<RouteRef> all;
  {
    std::lock_guard lock(segmentMutex_);
    for (const auto& [id, known] : segments_) {
      ViewRef view = known->current();
      for (const auto& way : view ? view->ways : std::vector<SegmentView::Way>{}) {
        if (!way.route || !way.route->transport->watched()) continue;
        all.push_back(way.route);
        if (way.route->silent(nowMs(), SILENCE_MS)) silent.emplace_back(known, way.route);
      }
    }
  }
  for (const auto& route : all) {
    std::vector<std::pair<Slice, std::string>> late;
    {
      std::lock_guard lock(route->strandedMutex);
      const uint64_t now = nowNs();
      std::erase_if(route->stranded, [&](const auto& each) {
        if (now >= each.first.deadlineNs) late.push_back(each);
        return now >= each.first.deadlineNs;
      });
    }
    for (const auto& [slice, why] : late) fail(slice, route->path(), why);
  }
  for (const auto& [segment, route] : silent) {
    if (segment->rereading.exchange(true)) continue;
    auto work = [this, segment = segment, route = route] {
      std::string gone;
      auto where = rpcAddressOf(segment->name);
      bool answered = false;
      // An open handshake port is queried for the peer's current instance. If it does not answer, the peer may be stopped, and nothing is
      // known.
      if (where && !connectWithin(*where, options.connectTimeoutMs)) gone = "the peer is gone: " + lastError();
      else answered = refresh(*segment, REFRESH_EVERY_MS, ANSWER_MS);
      route->heard(nowMs() + (answered ? 0 : ASK_AGAIN_MS));
      segment->rereading = false;
      if (!gone.empty()) route->close(gone);
    };
    if (!pool.post(segment->id, work)) segment->rereading = false;
  }
}

}  // namespace svc
