// From a request frame to its response: which operation it names, whether it may run now, and the simple operations.
#include "rpc/operations.h"

#include <algorithm>
#include <chrono>

namespace svc {

Op opOf(std::string_view name) {
  static const std::unordered_map<std::string_view, Op> ops = {
      {"constant", Op::constant},
      {"Ping", Op::ping},
      {"FetchTasks", Op::fetchTasks},
      {"ExistKey", Op::existKey},
      {"BatchExistKey", Op::batchExistKey},
      {"ProbeKey", Op::probeKey},
      {"BatchProbeKey", Op::batchProbeKey},
      {"GetReplicaListForAdmin", Op::replicaListForAdmin},
      {"BatchGetReplicaListForAdmin", Op::batchReplicaListForAdmin},
      {"GetReplicaList", Op::getReplicaList},
      {"BatchGetReplicaList", Op::batchGetReplicaList},
      {"ReadObjects", Op::readObjects},
      {"WhyMissing", Op::whyMissing},
      {"TakeChanges", Op::takeChanges},
      {"TakeDiskOrders", Op::takeDiskOrders},
      {"PutStart", Op::putStart},
      {"UpsertStart", Op::upsertStart},
      {"BatchPutStart", Op::batchPutStart},
      {"BatchUpsertStart", Op::batchUpsertStart},
      {"PutEnd", Op::putEnd},
      {"UpsertEnd", Op::upsertEnd},
      {"BatchPutEnd", Op::batchPutEnd},
      {"BatchUpsertEnd", Op::batchUpsertEnd},
      {"PutRevoke", Op::putRevoke},
      {"UpsertRevoke", Op::upsertRevoke},
      {"BatchPutRevoke", Op::batchPutRevoke},
      {"BatchUpsertRevoke", Op::batchUpsertRevoke},
      {"Remove", Op::remove},
      {"BatchRemove", Op::batchRemove},
      {"CopyStart", Op::copyStart},
      {"MoveStart", Op::moveStart},
      {"CopyEnd", Op::copyEnd},
      {"CopyRevoke", Op::copyRevoke},
      {"MoveEnd", Op::moveEnd},
      {"MoveRevoke", Op::moveRevoke},
      {"LeaseExtents", Op::leaseExtents},
      {"ReturnExtents", Op::returnExtents},
      {"CommitPuts", Op::commitPuts},
      {"BeginCopies", Op::beginCopies},
      {"EndCopies", Op::endCopies},
      {"BeginRestore", Op::beginRestore},
      {"RestoreObjects", Op::restoreObjects},
      {"KeepFiles", Op::keepFiles},
  };
  const auto found = ops.find(name);
  return found == ops.end() ? Op::script : found->second;
}

void Operations::declare(u32 function, Declared declared) { declared_[function].push_back(std::move(declared)); }

u16 Operations::tenantOf(WireReader& in, i32 barred) {
  std::string_view name = in.text();
  if (tenant_ != nullptr) {
    if (name.empty()) name = *tenant_;
    else if (name != *tenant_) refused_ = in.failed = true;
  }
  // During recovery the store belongs to another thread.
  return barred == code::unavailable ? u16{0} : store_.tenantOf(name);
}

Operations::Outcome Operations::run(const Request& request, const char* body, Log* log, std::string& out, const std::string* tenant) {
  tenant_ = tenant;
  refused_ = false;
  const auto known = declared_.find(request.function);
  if (known == declared_.end()) return Outcome::unknown;
  WireReader in(body, request.bodyBytes);
  const u32 hash = request.bodyBytes == 0 ? 0 : in.begin();
  for (const Declared& declared : known->second) {
    if (declared.argsHash != hash || in.failed) continue;
    if (tenant != nullptr && !declared.tenants) return Outcome::refused;
    const auto begun = std::chrono::steady_clock::now();
    const std::size_t before = out.size();
    const Outcome outcome = answer(declared, request, in, log, out);
    if (outcome == Outcome::answered && in.failed) {
      // The body does not match its declared type, so JavaScript reports the error.
      out.resize(before);
      return refused_ ? Outcome::refused : Outcome::script;
    }
    if (outcome == Outcome::later) return outcome;
    const u64 took = static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begun).count());
    timed(declared.op, took);
    return outcome;
  }
  return Outcome::unknown;
}

void Operations::timed(Op op, u64 nanoseconds) {
  OperationMetrics& row = metrics[static_cast<u32>(op)];
  ++row.requests;
  row.nanoseconds += nanoseconds;
  const u32 bucket = static_cast<u32>(std::bit_width(nanoseconds / 2000));
  ++row.within[std::min(bucket, OperationMetrics::buckets - 1)];
}

Operations::Outcome Operations::answer(const Declared& declared, const Request& request, WireReader& in, Log* log, std::string& out) {
  const Op op = declared.op;
  if (op == Op::script) return Outcome::script;
  i32 barred = log == nullptr ? code::unavailable : this->barred;
  const bool changes = op >= Op::putStart;
  // This is an upper bound of a request's records: a change that could not be logged is not made.
  if (changes && barred == code::ok && !log->hasSpace(u64{request.bodyBytes} * 8 + store_.journal.pending.size() + (u64{64} << 10), store_.nowMs())) {
    barred = code::persistFail;
    ++refusedLogFull;
  }
  switch (op) {
    case Op::constant: {
      if (barred != code::ok) return Outcome::script;
      WireWriter to(out);
      to.frame(request.seq, 0);
      out.append(declared.constant);
      to.end();
      return Outcome::answered;
    }
    case Op::ping: {
      const Uuid id = in.get<Uuid>();
      i32 status = 0;
      if (barred == code::ok && !in.failed) barred = store_.ping(id, status);
      count(op, barred);
      WireWriter to(out);
      to.frame(request.seq, 0);
      to.body(declared.resultHash, 0, declared.literal);
      to.done(barred);
      if (barred == code::ok) {
        to.put(view);
        to.put(status);
      }
      to.end();
      return Outcome::answered;
    }
    case Op::fetchTasks: {
      const Uuid id = in.get<Uuid>();
      in.get<u64>();
      if (in.failed || barred != code::ok) return Outcome::script;
      const u32 client = store_.cluster.findClient(id);
      if ((client != 0 && store_.cluster.client(client).tasks > 0)) return Outcome::script;
      WireWriter to(out);
      to.frame(request.seq, 0);
      to.body(declared.resultHash, 0, declared.literal);
      to.done(code::ok);
      to.length(0);
      to.end();
      return Outcome::answered;
    }
    case Op::existKey:
    case Op::batchExistKey:
    case Op::probeKey:
    case Op::batchProbeKey:
      exist(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::getReplicaList:
    case Op::batchGetReplicaList:
    case Op::replicaListForAdmin:
    case Op::batchReplicaListForAdmin:
    case Op::readObjects:
      read(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::putStart:
    case Op::upsertStart:
      return start(declared, request, in, barred, out, op == Op::upsertStart, false);
    case Op::batchPutStart:
    case Op::batchUpsertStart:
      return start(declared, request, in, barred, out, op == Op::batchUpsertStart, true);
    case Op::remove:
    case Op::batchRemove:
      remove(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::copyStart:
    case Op::moveStart:
    case Op::copyEnd:
    case Op::copyRevoke:
    case Op::moveEnd:
    case Op::moveRevoke:
      copy(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::beginCopies:
      beginCopies(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::endCopies:
      endCopies(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::whyMissing:
      whyMissing(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::takeChanges:
      takeChanges(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::takeDiskOrders:
      takeDiskOrders(declared, request, in, barred, log, out);
      return Outcome::answered;
    case Op::keepFiles:
      keepFiles(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::beginRestore:
      beginRestore(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::restoreObjects:
      restore(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::leaseExtents:
      return lease(declared, request, in, barred, out);
    case Op::returnExtents:
      giveBack(declared, request, in, barred, out);
      return Outcome::answered;
    case Op::commitPuts:
      commit(declared, request, in, barred, out);
      return Outcome::answered;
    default:
      finish(declared, request, in, barred, out);
      return Outcome::answered;
  }
}

void Operations::count(Op op, i32 outcome) {
  OperationMetrics& row = metrics[static_cast<u32>(op)];
  ++row.items;
  if (outcome != code::ok) ++row.failedItems;
}

void Operations::prefetch(u16 tenant) {
  if (keys_.size() < 4 || tenant == Store::noTenant) return;
  hashes_.clear();
  for (const std::string_view key : keys_) {
    hashes_.push_back(store_.table.hashOf(tenant, key));
    store_.table.prefetchSlot(hashes_.back());
  }
  for (const u64 hash : hashes_) store_.table.prefetchRecord(hash);
}

void Operations::outcomes(const Declared& declared, const Request& request, bool batch, std::string& out) {
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, batch ? results_.size() : 0, declared.literal);
  if (batch) to.length(results_.size());
  for (const i32 outcome : results_) {
    count(declared.op, outcome);
    to.done(outcome);
  }
  to.end();
}

void Operations::descriptor(WireWriter& to, const Replica& replica, u64 size) const {
  constexpr u8 memory = 0, nof = 1, disk = 2, localDisk = 3;
  const Segment& segment = *store_.cluster.segment(replica.segment);
  to.put(store_.replicaID(replica));
  if (segment.shared()) {
    to.put(disk);
    to.text(store_.pathOf(segment, store_.nodes[replica.node].offset));
    to.put(size);
    to.put(static_cast<i32>(replica.status));
    return;
  }
  to.put(segment.onDisk() ? localDisk : segment.nof() ? nof : memory);
  if (segment.onDisk()) {
    to.put(store_.cluster.client(segment.client).id);
    to.put(size);
    to.text(segment.endpoint);
    to.put(static_cast<i32>(replica.status));
    return;
  }
  to.put(size);
  to.put(segment.base + segment.allocator.offsetOf(replica.node));
  to.text(segment.protocol);
  to.text(segment.endpoint);
  to.put(static_cast<i32>(replica.status));
}

std::size_t Operations::widest(u32 index) const {
  std::size_t largest = 0;
  store_.eachReplica(index, [&](const Replica& replica) {
    const Segment& segment = *store_.cluster.segment(replica.segment);
    largest = std::max({largest, segment.protocol.size(), segment.endpoint.size(), segment.shared() ? store_.pathOf(segment, 0).size() : 0});
  });
  return largest;
}

void Operations::descriptors(WireWriter& to, u32 index, bool readableOnly) const {
  std::size_t count = 0;
  store_.eachReplica(index, [&](const Replica& replica) { count += !readableOnly || store_.readable(replica); });
  to.length(count);
  // Memory comes first: Mooncake's clients read the first replica that they can.
  for (const u32 rank : {0u, 1u, 2u})
    store_.eachReplica(index, [&](const Replica& replica) {
      if ((store_.onDisk(replica) ? 2u : store_.inMemory(replica) ? 0u : 1u) == rank && (!readableOnly || store_.readable(replica))) descriptor(to, replica, store_.table[index].size);
    });
}

}  // namespace svc
