// Turns a list of requests into slices: checks all of them, then gives each to the first route that serves its target.
#include "engine.h"

namespace svc {

namespace {
/** Copies between processes up to this size run within the call; longer ones would delay an asynchronous caller. */
constexpr uint64_t INLINE_COPY_BYTES = 256 << 10;
/** A record younger than this is not read again because a range is missing. */
constexpr uint64_t FRESH_MS = 200;
/** The same limit without tcp: only tcp's server can find a range that the record does not list yet. */
constexpr uint64_t REFRESH_WITHOUT_TCP_MS = 10;

/** The highest cost of the segment's routes for the submitting thread. */
Cost costOf(const SegmentView& view) {
  Cost most = Cost::Posts;
  view.eachRoute([&](Route& route) { most = std::max(most, route.cost()); });
  return most;
}
}  // namespace

Status Engine::submit(Batch& batch, const std::vector<TransferRequest>& entries, Drive drive, uint64_t timeoutMs, std::function<void(Batch&)> whenDone) {
  struct Inside {
    std::atomic<int>& count;
    explicit Inside(std::atomic<int>& counter) : count(counter) { count.fetch_add(1); }
    ~Inside() { count.fetch_sub(1); }
  } here(inside_);
  if (stopping_ || !started_) return {1, "submitTransfer: the engine is not running"};
  std::vector<Slice> slices;
  slices.reserve(entries.size());
  std::vector<SegmentRef> used;
  uint64_t total = 0;
  bool mayRefresh = drive == Drive::Caller;
  {
    std::lock_guard lock(batch.mutex);
    if (entries.size() > batch.capacity - batch.tasks.size())
      return {2, std::to_string(entries.size()) + " requests for a batch that has room for " + std::to_string(batch.capacity - batch.tasks.size()) + " of " + std::to_string(batch.capacity)};
    auto shared = registry.lockShared();
    Segment* target = nullptr;
    SegmentID targetID = LOCAL_SEGMENT_ID;
    ViewRef view;
    for (size_t i = 0; i < entries.size(); i++) {
      const TransferRequest& entry = entries[i];
      auto at = [&] { return "request " + std::to_string(i) + ": "; };
      if (entry.opcode != TransferRequest::READ && entry.opcode != TransferRequest::WRITE) return {1, at() + "opcode " + std::to_string(int(entry.opcode)) + " is neither READ nor WRITE"};
      if (entry.target_id != targetID) {
        SegmentRef found = entry.target_id == LOCAL_SEGMENT_ID ? nullptr : segment(entry.target_id);
        if (!found && entry.target_id != LOCAL_SEGMENT_ID) return {1, at() + "target_id " + std::to_string(entry.target_id) + " is not an open segment"};
        target = found.get();
        targetID = entry.target_id;
        if (found) used.push_back(std::move(found));
        view = target != nullptr ? target->current() : nullptr;
        bool full = false;
        if (view) view->eachRoute([&](Route& route) { full |= route.inFlight() + entries.size() > options.maxQueuedRequests; });
        if (full) return {2, at() + std::to_string(options.maxQueuedRequests) + " requests wait for " + target->name + " already; wait for some first"};
      }
      uint64_t source = reinterpret_cast<uint64_t>(entry.source);
      if (registry.forSourceLocked(source, entry.length) == nullptr)
        return {3, at() + "source " + rangeText(source, entry.length) + " lies in no buffer registered with this engine"};
      if (entry.target_offset + entry.length < entry.target_offset) return {1, at() + "target " + rangeText(entry.target_offset, entry.length) + " passes the end of memory"};
      if (view && !view->reachable()) {
        // The peer may have been starting when its record was read, so we read it again for later requests.
        reread(used.back());
        return {8, at() + "segment " + target->name + " cannot be reached: " + view->whyNot()};
      }
      Slice& slice = slices.emplace_back();
      slice.segment = target;
      slice.local = source;
      slice.remote = entry.target_offset;
      slice.length = entry.length;
      slice.write = entry.opcode == TransferRequest::WRITE;
      slice.maxAttempts = uint8_t(2 + std::min(std::max(entry.advise_retry_cnt, 0), 100));
      total += entry.length;
    }
    // From here on no error may be returned, because the tasks exist.
    if (whenDone) {
      auto before = std::move(batch.whenDone);
      batch.whenDone = before ? [before, whenDone](Batch& done) { before(done); whenDone(done); } : std::move(whenDone);
    }
    batch.tasksOpen.fetch_add(uint32_t(slices.size()), std::memory_order_acq_rel);
    batch.tasksLeft.fetch_add(uint32_t(slices.size()), std::memory_order_acq_rel);
    uint64_t deadline = nowNs() + (timeoutMs != 0 ? timeoutMs : options.transferTimeoutMs) * NS_PER_MS + total;
    for (auto& slice : slices) {
      Task& task = batch.tasks.emplace_back();
      task.batch = &batch;
      task.length = slice.length;
      task.slicesLeft.store(1, std::memory_order_relaxed);
      task.source = registry.forSourceLocked(slice.local, slice.length);
      task.source->pin();
      slice.task = &task;
      slice.deadlineNs = deadline;
    }
  }
  if (slices.empty()) {
    if (whenDone == nullptr && batch.whenDone && batch.tasksLeft.load() == 0) std::exchange(batch.whenDone, nullptr)(batch);
    return Status::OK();
  }
  uint64_t deadline = slices.front().deadlineNs;
  // Long copies, files and unknown ranges would block an asynchronous caller.
  bool blocks = false;
  if (drive != Drive::Caller) {
    uint64_t copied = 0;
    Segment* last = nullptr;
    ViewRef view;
    Cost cost = Cost::Copies;
    for (const auto& slice : slices) {
      if (slice.segment != last) {
        last = slice.segment;
        view = last == nullptr ? nullptr : last->current();
        cost = view ? costOf(*view) : Cost::Copies;
      }
      if (cost == Cost::Copies) copied += slice.length;
      blocks |= cost == Cost::Blocks || (view && view->lacks(slice));
    }
    blocks |= copied > INLINE_COPY_BYTES;
  }
  if (blocks) {
    auto waiting = waitWith(std::move(slices), Path::Tcp, "the engine's threads were busy", std::move(used));
    auto work = [this, waiting, deadline] {
      std::vector<Slice> due = waiting->take();
      dispatch(due, Drive::Engine, deadline, true);
    };
    if (!pool.post(reinterpret_cast<uint64_t>(&batch) >> 6, work)) work();
    return Status::OK();
  }
  dispatch(slices, drive, deadline, mayRefresh);
  return Status::OK();
}

void Engine::dispatch(std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs, bool mayRefresh) {
  // The usual case has a single target and no empty slices.
  Segment* only = slices.empty() ? nullptr : slices.front().segment;
  if (only != nullptr && std::all_of(slices.begin(), slices.end(), [only](const Slice& slice) { return slice.segment == only && slice.length > 0; }))
    return route(*only, slices, drive, deadlineNs, mayRefresh);
  size_t from = 0;
  while (from < slices.size()) {
    Segment* target = slices[from].segment;
    std::vector<Slice> rest;
    for (; from < slices.size() && slices[from].segment == target; from++) {
      const Slice& slice = slices[from];
      if (slice.length == 0) finishSlice(*slice.task, 0, nullptr);
      else if (target == nullptr) copyOwn(slice);
      else rest.push_back(slice);
    }
    if (!rest.empty()) route(*target, rest, drive, deadlineNs, mayRefresh);
  }
}

void Engine::copyOwn(const Slice& slice) {
  Buffer* target = registry.pinTarget(slice.remote, slice.length);
  if (target == nullptr) return fail(slice, Path::Local, "range " + rangeText(slice.remote, slice.length) + " lies in no registered buffer of this engine");
  auto* here = reinterpret_cast<char*>(slice.local);
  auto* there = reinterpret_cast<char*>(slice.remote);
  // The ranges may overlap.
  if (slice.write) memmove(there, here, slice.length);
  else memmove(here, there, slice.length);
  target->unpin();
  completeSlice(metrics, Path::Local, slice);
}

void Engine::route(Segment& segment, std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs, bool mayRefresh) {
  ViewRef view = segment.current();
  bool stale = false, unpublished = false;
  // Another process may have replaced one that ended, with different memory at the same addresses.
  view->eachRoute([&](Route& each) {
    stale |= !each.alive();
    unpublished |= each.servesUnpublished();
  });
  stale = stale || std::any_of(slices.begin(), slices.end(), [&](const Slice& slice) { return view->lacks(slice); });
  if (mayRefresh && stale && refresh(segment, unpublished ? FRESH_MS : REFRESH_WITHOUT_TCP_MS, RPC_MS, deadlineNs)) view = segment.current();
  const SegmentDescriptor& record = *view->record;
  if (record.isFile()) {
    const uint64_t length = record.fileBytes();
    std::erase_if(slices, [&](const Slice& slice) {
      if (inside(0, length, slice.remote, slice.length)) return false;
      fail(slice, Path::File, "segment " + segment.name + ": " + endText(slice.remote, slice.length, length));
      return true;
    });
  } else {
    for (auto& slice : slices) slice.buffer = record.holding(slice.remote, slice.length);
    // A range that is not published may be refused, which closes the connection, so such slices go last.
    std::stable_partition(slices.begin(), slices.end(), [](const Slice& slice) { return slice.buffer != nullptr; });
  }
  for (const auto& way : view->ways) {
    if (slices.empty()) return;
    if (!way.route || !way.route->usable()) continue;
    if (Unfinished left = way.route->take(slices, drive, deadlineNs); !left.slices.empty()) recoverHere(segment, way.route, std::move(left), deadlineNs);
  }
  const Path last = record.isFile() ? Path::File : Path::Tcp;
  for (const auto& slice : slices) fail(slice, last, "segment " + segment.name + ", " + rangeText(slice.remote, slice.length) + ": no path serves it: " + view->whyNot());
}

Status Engine::transferSync(const std::vector<TransferRequest>& entries, uint64_t timeoutMs) {
  if (entries.empty()) return Status::OK();
  BatchID id = batches.allocate(entries.size());
  if (id == INVALID_BATCH_ID) return {2, lastError()};
  Batch& batch = *batches.find(id);
  Status status = submit(batch, entries, Drive::Caller, timeoutMs, nullptr);
  if (status.ok()) {
    // Requests over rdma end on another thread; all others have already ended.
    batch.wait(~0ull);
    if (batch.failedTasks.load() != 0) status = {102, batch.firstError()};
  }
  batches.free(id);
  return status;
}

void Engine::transferAsync(const std::vector<TransferRequest>& entries, std::function<void(Status)> done, uint64_t timeoutMs, bool lingers) {
  if (entries.empty()) return done(Status::OK());
  BatchID id = batches.allocate(entries.size());
  if (id == INVALID_BATCH_ID) return done({2, lastError()});
  Batch& batch = *batches.find(id);
  auto shared = std::make_shared<std::function<void(Status)>>(std::move(done));
  batch.afterDone = [this, id, shared](Batch& over) {
    Status result = over.failedTasks.load() != 0 ? Status(102, over.firstError()) : Status::OK();
    batches.free(id);
    (*shared)(result);
  };
  Status status = submit(batch, entries, lingers ? Drive::Lingering : Drive::Engine, timeoutMs, nullptr);
  if (!status.ok()) {
    batches.free(id);
    (*shared)(status);
  }
}

}  // namespace svc
