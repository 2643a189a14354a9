// From a list of requests to pieces on their paths: checked as a whole, then each on the first path that serves its target.
#include "engine.h"

namespace svc {

namespace {
/** Copies between processes up to this much are made in the call; more would hold a caller that does not wait. */
constexpr uint64_t INLINE_COPY_BYTES = 256 << 10;
/** A record this fresh is not read again because a range is missing in it. */
constexpr uint64_t REFRESH_EVERY_MS = 200;
/** Without tcp, whose server looks into its own table, nothing serves the range until the record has it. */
constexpr uint64_t REFRESH_WITHOUT_TCP_MS = 10;

bool lacks(const SegmentView& view, const Piece& piece) { return !view.record->isFile() && view.record->holding(piece.wire.remote, piece.wire.length) == nullptr; }
}  // namespace

Status Engine::submit(Batch& batch, const std::vector<TransferRequest>& entries, Drive drive, uint64_t timeoutMs, std::function<void(Batch&)> whenDone) {
  struct Inside {
    std::atomic<int>& count;
    explicit Inside(std::atomic<int>& counter) : count(counter) { count.fetch_add(1); }
    ~Inside() { count.fetch_sub(1); }
  } here(inside_);
  if (stopping_ || !started_) return {1, "submitTransfer: the engine is not running"};
  std::vector<Piece> pieces;
  pieces.reserve(entries.size());
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
        if (!found && entry.target_id != LOCAL_SEGMENT_ID) return {1, at() + "target_id " + std::to_string(entry.target_id) + " is no open segment"};
        target = found.get();
        targetID = entry.target_id;
        if (found) used.push_back(std::move(found));
        view = target != nullptr ? target->current() : nullptr;
        bool full = view && view->tcp && view->tcp->queuedPieces() + entries.size() > options.maxQueuedPieces;
        full |= view && view->rdma && view->rdma->inFlight.load(std::memory_order_relaxed) + entries.size() > options.maxQueuedPieces;
        if (full)
          return {2, at() + std::to_string(options.maxQueuedPieces) + " requests wait for " + target->name + " already; wait for some first"};
      }
      uint64_t source = reinterpret_cast<uint64_t>(entry.source);
      if (registry.forSourceLocked(source, entry.length) == nullptr)
        return {3, at() + "source " + rangeText(source, entry.length) + " lies in no buffer registered with this engine"};
      if (entry.target_offset + entry.length < entry.target_offset) return {1, at() + "target " + rangeText(entry.target_offset, entry.length) + " passes the end of memory"};
      if (view && !view->tcp && !view->file && !view->rdma && !mayShm(*view)) {
        // A peer that was starting when its record was read may serve by now.
        reread(used.back());
        return {8, at() + "segment " + target->name + " cannot be reached: " + whyNot(*view)};
      }
      Piece piece;
      piece.segment = target;
      piece.wire.local = source;
      piece.wire.remote = entry.target_offset;
      piece.wire.length = entry.length;
      piece.wire.write = entry.opcode == TransferRequest::WRITE;
      piece.wire.maxAttempts = uint8_t(2 + std::min(std::max(entry.advise_retry_cnt, 0), 100));
      pieces.push_back(piece);
      total += entry.length;
    }
    // Nothing may fail from here on: the tasks exist.
    if (whenDone) {
      auto before = std::move(batch.whenDone);
      batch.whenDone = before ? [before, whenDone](Batch& done) { before(done); whenDone(done); } : std::move(whenDone);
    }
    batch.tasksOpen.fetch_add(uint32_t(pieces.size()), std::memory_order_acq_rel);
    batch.tasksLeft.fetch_add(uint32_t(pieces.size()), std::memory_order_acq_rel);
    uint64_t deadline = nowNs() + (timeoutMs != 0 ? timeoutMs : options.transferTimeoutMs) * NS_PER_MS + total;
    for (auto& piece : pieces) {
      Task& task = batch.tasks.emplace_back();
      task.batch = &batch;
      task.length = piece.wire.length;
      task.piecesLeft.store(1, std::memory_order_relaxed);
      task.source = registry.forSourceLocked(piece.wire.local, piece.wire.length);
      task.source->pin();
      piece.wire.task = &task;
      piece.wire.deadlineNs = deadline;
    }
  }
  if (pieces.empty()) {
    if (whenDone == nullptr && batch.whenDone && batch.tasksLeft.load() == 0) std::exchange(batch.whenDone, nullptr)(batch);
    return Status::OK();
  }
  uint64_t deadline = pieces.front().wire.deadlineNs;
  // Long copies, files and unknown ranges would block a caller that does not wait.
  bool blocks = false;
  if (drive == Drive::Engine) {
    uint64_t copied = 0;
    for (const auto& piece : pieces) {
      ViewRef view = piece.segment == nullptr ? nullptr : piece.segment->current();
      if (view == nullptr || view->host) copied += piece.wire.length;
      if (view != nullptr && (view->file || lacks(*view, piece) || (mayShm(*view) && !view->host->alive()))) blocks = true;
    }
    blocks |= copied > INLINE_COPY_BYTES;
  }
  if (blocks) {
    auto waiting = waitWith(std::move(pieces), Path::Tcp, "the engine's threads were busy", std::move(used));
    auto work = [this, waiting, deadline] {
      std::vector<Piece> due = waiting->take();
      dispatch(due, Drive::Engine, deadline, true);
    };
    if (!pool.post(reinterpret_cast<uint64_t>(&batch) >> 6, work)) work();
    return Status::OK();
  }
  dispatch(pieces, drive, deadline, mayRefresh);
  return Status::OK();
}

void Engine::dispatch(std::vector<Piece>& pieces, Drive drive, uint64_t deadlineNs, bool mayRefresh) {
  size_t from = 0;
  while (from < pieces.size()) {
    Segment* target = pieces[from].segment;
    size_t to = from + 1;
    while (to < pieces.size() && pieces[to].segment == target) to++;
    std::vector<Piece> rest;
    rest.reserve(to - from);
    for (; from < to; from++) {
      Piece& piece = pieces[from];
      if (piece.wire.length == 0) finishPiece(*piece.wire.task, 0, nullptr);
      else if (target == nullptr) copyOwn(piece);
      else rest.push_back(piece);
    }
    if (rest.empty()) continue;
    ViewRef view = target->current();
    if (view->record->isFile()) {
      runFile(*target, view, rest);
      if (rest.empty()) continue;
    }
    auto stale = [&] {
      // A process that is gone may have another in its place, with other memory under the same addresses.
      if (mayShm(*view) && !view->host->alive()) return true;
      return std::any_of(rest.begin(), rest.end(), [&](const Piece& piece) { return lacks(*view, piece); });
    };
    if (mayRefresh && stale() && refresh(*target, view->tcp ? REFRESH_EVERY_MS : REFRESH_WITHOUT_TCP_MS, RPC_MS, deadlineNs)) view = target->current();
    for (auto& piece : rest) piece.buffer = view->record->holding(piece.wire.remote, piece.wire.length);
    // A range that nobody published may be refused, which ends the connection: such go last.
    std::stable_partition(rest.begin(), rest.end(), [](const Piece& piece) { return piece.buffer != nullptr; });
    if (mayShm(*view)) {
      std::vector<Piece> left;
      copyOnHost(*target, view, rest, left);
      rest.swap(left);
    }
    std::deque<TcpPiece> wire;
    for (auto& piece : rest) {
      if (view->rdma && piece.buffer != nullptr && !piece.buffer->remoteKeys.empty()) {
        TcpPiece one = piece.wire;
        Buffer* source = one.task->source;
        auto done = [this, view, one, id = target->id](const std::string* error) { endRdma(id, view, one, error); };
        view->rdmaTransport->post(view->rdma, source->location, *piece.buffer, one, source->localDescriptors.data(), done);
        continue;
      }
      wire.push_back(piece.wire);
    }
    if (wire.empty()) continue;
    if (!view->tcp) {
      for (const auto& piece : wire) failPiece(piece, Path::Tcp, "segment " + target->name + ", " + rangeText(piece.remote, piece.length) + ": no path serves it: " + whyNot(*view));
      continue;
    }
    uint64_t bytes = 0;
    for (const auto& piece : wire) bytes += piece.length;
    account(Path::Tcp, wire.size(), bytes);
    if (drive == Drive::Caller) runTcp(*target, std::move(wire), deadlineNs);
    else view->tcp->submit(std::move(wire));
  }
}

Status Engine::transferSync(const std::vector<TransferRequest>& entries, uint64_t timeoutMs) {
  if (entries.empty()) return Status::OK();
  BatchID id = batches.allocate(entries.size());
  if (id == INVALID_BATCH_ID) return {2, lastError()};
  Batch& batch = *batches.find(id);
  Status status = submit(batch, entries, Drive::Caller, timeoutMs, nullptr);
  if (status.ok()) {
    // Requests over rdma end on another thread; the others have ended.
    batch.wait(~0ull);
    if (batch.failedTasks.load() != 0) status = {102, batch.firstError()};
  }
  batches.free(id);
  return status;
}

void Engine::transferAsync(const std::vector<TransferRequest>& entries, std::function<void(Status)> done, uint64_t timeoutMs) {
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
  Status status = submit(batch, entries, Drive::Engine, timeoutMs, nullptr);
  if (!status.ok()) {
    batches.free(id);
    (*shared)(status);
  }
}

}  // namespace svc
