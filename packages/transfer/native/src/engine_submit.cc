// From a list of requests to pieces on their paths: checked as a whole, then each on the first path that serves its target.
#include "engine.h"

namespace svc {

namespace {
/** Copies between processes up to this much are made in the call; more would hold a caller that does not wait. */
constexpr uint64_t INLINE_COPY_BYTES = 256 << 10;
/** A record this fresh is not read again because a range is missing in it. */
constexpr uint64_t REFRESH_EVERY_MS = 200;
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
        if (view && view->tcp && view->tcp->queuedPieces() + entries.size() > options.maxQueuedPieces)
          return {2, at() + std::to_string(options.maxQueuedPieces) + " requests wait for " + target->name + " already; wait for some first"};
      }
      uint64_t source = reinterpret_cast<uint64_t>(entry.source);
      if (registry.forSourceLocked(source, entry.length) == nullptr)
        return {3, at() + "source " + rangeText(source, entry.length) + " lies in no buffer registered with this engine"};
      if (entry.target_offset + entry.length < entry.target_offset) return {1, at() + "target " + rangeText(entry.target_offset, entry.length) + " passes the end of memory"};
      if (view && !view->tcp && !view->file && !view->rdma && !mayShm(*view))
        return {8, at() + "segment " + target->name + " cannot be reached: " + view->tcpWhy + "; " + view->hostWhy + "; " + view->rdmaWhy};
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
      if (view != nullptr && (view->file || view->record->holding(piece.wire.remote, piece.wire.length) == nullptr)) blocks = true;
    }
    blocks |= copied > INLINE_COPY_BYTES;
  }
  if (blocks) {
    auto kept = std::make_shared<std::pair<std::vector<Piece>, std::vector<SegmentRef>>>(std::move(pieces), std::move(used));
    auto work = [this, kept, deadline] { dispatch(kept->first, Drive::Engine, deadline, true); };
    if (!pool.post(reinterpret_cast<uint64_t>(&batch) >> 6, work)) work();
    return Status::OK();
  }
  dispatch(pieces, drive, deadline, mayRefresh);
  return Status::OK();
}

void Engine::account(Path path, uint64_t requests, uint64_t bytes) {
  auto& counters = metrics.of(path);
  counters.requests.fetch_add(requests, std::memory_order_relaxed);
  counters.bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void Engine::copyOwn(Piece& piece) {
  Buffer* target = registry.forSource(piece.wire.remote, piece.wire.length);
  if (target == nullptr) return failPiece(piece.wire, Path::Local, "range " + rangeText(piece.wire.remote, piece.wire.length) + " lies in no registered buffer of this engine");
  auto* here = reinterpret_cast<char*>(piece.wire.local);
  auto* there = reinterpret_cast<char*>(piece.wire.remote);
  // The two may overlap.
  if (piece.wire.write) memmove(there, here, piece.wire.length);
  else memmove(here, there, piece.wire.length);
  account(Path::Local, 1, piece.wire.length);
  finishPiece(*piece.wire.task, piece.wire.length, nullptr);
}

void Engine::dispatch(std::vector<Piece>& pieces, Drive drive, uint64_t deadlineNs, bool mayRefresh) {
  size_t from = 0;
  while (from < pieces.size()) {
    Segment* target = pieces[from].segment;
    size_t to = from + 1;
    while (to < pieces.size() && pieces[to].segment == target) to++;
    std::vector<Piece> group(pieces.begin() + long(from), pieces.begin() + long(to));
    from = to;
    std::vector<Piece> rest;
    for (auto& piece : group) {
      if (piece.wire.length == 0) finishPiece(*piece.wire.task, 0, nullptr);
      else if (target == nullptr) copyOwn(piece);
      else rest.push_back(piece);
    }
    if (rest.empty()) continue;
    ViewRef view = target->current();
    if (view->file) {
      std::vector<FileRequest> requests;
      for (const auto& piece : rest) requests.push_back({piece.wire.local, piece.wire.remote, piece.wire.length, piece.wire.write, {}});
      files_->run(*view->file, requests);
      for (size_t i = 0; i < rest.size(); i++) {
        if (!requests[i].error.empty()) {
          failPiece(rest[i].wire, Path::File, "segment " + target->name + ": " + requests[i].error);
          continue;
        }
        account(Path::File, 1, rest[i].wire.length);
        finishPiece(*rest[i].wire.task, rest[i].wire.length, nullptr);
      }
      continue;
    }
    auto known = [&] {
      for (auto& piece : rest) {
        piece.buffer = view->record->holding(piece.wire.remote, piece.wire.length);
        if (piece.buffer == nullptr) return false;
      }
      return true;
    };
    if (!known() && mayRefresh && refresh(*target, REFRESH_EVERY_MS)) {
      view = target->current();
      known();
    }
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
        auto keep = view;
        TcpPiece one = piece.wire;
        Buffer* source = one.task->source;
        std::string peer = target->name;
        view->rdmaTransport->post(*view->rdma, source->location, *piece.buffer, one, source->localDescriptors.data(), [this, keep, one, peer](const std::string* error) {
          if (error != nullptr && keep->tcp && !stopping_ && nowNs() < one.deadlineNs) {
            metrics.of(Path::Rdma).fallbacks.fetch_add(1, std::memory_order_relaxed);
            account(Path::Tcp, 1, one.length);
            return keep->tcp->submit({one});
          }
          if (error != nullptr) return failPiece(one, Path::Rdma, "peer " + peer + ", " + rangeText(one.remote, one.length) + ": " + *error);
          account(Path::Rdma, 1, one.length);
          finishPiece(*one.task, one.length, nullptr);
        });
        continue;
      }
      wire.push_back(piece.wire);
    }
    if (wire.empty()) continue;
    if (!view->tcp) {
      for (const auto& piece : wire) failPiece(piece, Path::Tcp, "segment " + target->name + ", " + rangeText(piece.remote, piece.length) + ": no path serves it: " + view->hostWhy + "; " + view->rdmaWhy + "; " + view->tcpWhy);
      continue;
    }
    uint64_t bytes = 0;
    for (const auto& piece : wire) bytes += piece.length;
    account(Path::Tcp, wire.size(), bytes);
    if (drive == Drive::Caller) runTcp(*target, std::move(wire), deadlineNs);
    else view->tcp->submit(std::move(wire));
  }
}

void Engine::copyOnHost(Segment& segment, const ViewRef& view, std::vector<Piece>& pieces, std::vector<Piece>& rest) {
  HostPeer& host = *view->host;
  std::string why;
  if (!host.alive()) {
    // Its tcp side, if there is one, says so in its own words, and heals when the peer starts anew.
    metrics.of(Path::Shm).fallbacks.fetch_add(pieces.size(), std::memory_order_relaxed);
    rest.swap(pieces);
    return;
  }
  std::vector<HostCopy> run;
  std::vector<Piece*> owners;
  auto flush = [&] {
    size_t through = host.copyByKernel(run, why);
    uint64_t bytes = 0;
    for (size_t i = 0; i < run.size(); i++) {
      if (i >= through) {
        metrics.of(Path::ProcessVm).fallbacks.fetch_add(1, std::memory_order_relaxed);
        rest.push_back(*owners[i]);
        continue;
      }
      bytes += run[i].length;
    }
    account(Path::ProcessVm, through, bytes);
    for (size_t i = 0; i < through; i++) finishPiece(*owners[i]->wire.task, run[i].length, nullptr);
    run.clear();
    owners.clear();
  };
  uint64_t mappedCount = 0, mappedBytes = 0;
  for (auto& piece : pieces) {
    if (piece.buffer == nullptr || !piece.buffer->slot) {
      rest.push_back(piece);
      continue;
    }
    HostCopy copy{piece.wire.local, piece.wire.remote, piece.wire.length, piece.wire.write, piece.buffer};
    if (!piece.buffer->mapPath.empty()) {
      if (host.copyMapped(copy, why)) {
        mappedCount++;
        mappedBytes += copy.length;
        finishPiece(*piece.wire.task, copy.length, nullptr);
        continue;
      }
      metrics.of(Path::Shm).fallbacks.fetch_add(1, std::memory_order_relaxed);
    }
    if (!host.processVm()) {
      rest.push_back(piece);
      continue;
    }
    if (!run.empty() && run.back().write != copy.write) flush();
    run.push_back(copy);
    owners.push_back(&piece);
  }
  if (!run.empty()) flush();
  if (mappedCount > 0) account(Path::Shm, mappedCount, mappedBytes);
  (void)segment;
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
