// From a request frame to its response: which operation it names, whether it may run now, and the simple operations.
#include "rpc/operations.h"

#include <algorithm>
#include <chrono>

namespace svc {

Op opOf(std::string_view name) {
  const auto* found = std::find_if(std::begin(countedOperations), std::end(countedOperations), [&](const CountedOperation& each) { return each.name == name; });
  return found == std::end(countedOperations) ? Op::script : static_cast<Op>(found - countedOperations);
}

void Operations::declare(u32 function, Declared declared) { declared_[function].push_back(std::move(declared)); }

u16 Operations::tenantOf(Invocation& call, std::string_view name) {
  if (tenant_ != nullptr) {
    if (name.empty()) name = *tenant_;
    else if (name != *tenant_) refused_ = call.in.failed = true;
  }
  // During recovery the store belongs to another thread.
  return call.barred == code::unavailable ? u16{0} : store_.tenants.numberOf(name);
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
    Invocation call{declared, request, in, log, out, log == nullptr ? i32{code::unavailable} : barred};
    const Outcome outcome = answer(call);
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

Operations::Outcome Operations::answer(Invocation& call) {
  // This is an upper bound of a request's records: a change that could not be logged is not made.
  const u64 records = u64{call.request.bodyBytes} * 8 + store_.journal.pending.size() + (u64{64} << 10);
  if (call.op() >= firstChange && call.op() != Op::httpQueryKey && call.allowed() && !call.log->hasSpace(records, store_.nowMs())) {
    call.barred = code::persistFail;
    ++refusedLogFull;
  }
  const auto typeOf = [](i32 type) { return static_cast<ReplicaType>(type); };
  switch (call.op()) {
    case Op::script:
    case Op::httpQueryKey:
      return Outcome::script;
    case Op::constant: {
      if (!call.allowed()) return Outcome::script;
      WireWriter to(call.out);
      to.frame(call.request.seq, 0);
      call.out.append(call.declared.constant);
      to.end();
      break;
    }
    case Op::ping: ping(call); break;
    case Op::fetchTasks: return fetchTasks(call);
    case Op::existKey:
    case Op::batchExistKey:
    case Op::probeKey:
    case Op::batchProbeKey: exist(call); break;
    case Op::getReplicaList:
    case Op::batchGetReplicaList:
    case Op::getReplicaListForAdmin:
    case Op::batchGetReplicaListForAdmin:
    case Op::readObjects: read(call); break;
    case Op::whyMissing: whyMissing(call); break;
    case Op::takeChanges: takeChanges(call); break;
    case Op::takeDiskOrders: takeDiskOrders(call); break;
    case Op::putStart:
    case Op::upsertStart:
    case Op::batchPutStart:
    case Op::batchUpsertStart: return start(call);
    case Op::putEnd:
    case Op::upsertEnd: {
      const auto& args = arguments<wire::PutEnd>(call);
      end(call, args.client, {&args.meta, 1}, typeOf(args.replicaType));
      break;
    }
    case Op::batchPutEnd: {
      const auto& args = arguments<wire::BatchPutEnd>(call);
      end(call, args.client, args.metas, typeOf(args.replicaType));
      break;
    }
    // Batches without a type concern all replicas but the file, which is written meanwhile.
    case Op::batchUpsertEnd: {
      const auto& args = arguments<wire::BatchUpsertEnd>(call);
      end(call, args.client, args.metas, ReplicaType::all);
      break;
    }
    case Op::putRevoke:
    case Op::upsertRevoke: {
      const auto& args = arguments<wire::PutRevoke>(call);
      revoke(call, args.client, {&args.key, 1}, typeOf(args.replicaType));
      break;
    }
    case Op::batchPutRevoke: {
      const auto& args = arguments<wire::BatchPutRevoke>(call);
      revoke(call, args.client, args.keys, typeOf(args.replicaType));
      break;
    }
    case Op::batchUpsertRevoke: {
      const auto& args = arguments<wire::BatchUpsertRevoke>(call);
      revoke(call, args.client, args.keys, ReplicaType::all);
      break;
    }
    case Op::remove: {
      const auto& args = arguments<wire::Remove>(call);
      remove(call, {&args.key, 1}, args.force);
      break;
    }
    case Op::batchRemove: {
      const auto& args = arguments<wire::BatchRemove>(call);
      remove(call, args.keys, args.force);
      break;
    }
    case Op::copyStart:
    case Op::moveStart: copyStart(call); break;
    case Op::copyEnd:
    case Op::copyRevoke:
    case Op::moveEnd:
    case Op::moveRevoke: copyEnd(call); break;
    case Op::leaseExtents: return leaseExtents(call);
    case Op::returnExtents: returnExtents(call); break;
    case Op::commitPuts: commitPuts(call); break;
    case Op::beginCopies: beginCopies(call); break;
    case Op::endCopies: endCopies(call); break;
    case Op::beginRestore: beginRestore(call); break;
    case Op::restoreObjects: restore(call); break;
    case Op::keepFiles: keepFiles(call); break;
  }
  return Outcome::answered;
}

void Operations::ping(Invocation& call) {
  const auto& args = arguments<wire::Ping>(call);
  i32 status = 0;
  if (call.allowed() && !call.in.failed) call.barred = store_.holders.ping(args.client, status);
  count(call.op(), call.barred);
  WireWriter to = begin(call, 0);
  to.done(call.barred);
  if (call.allowed()) {
    to.put(view);
    to.put(status);
  }
  to.end();
}

Operations::Outcome Operations::fetchTasks(Invocation& call) {
  const auto& args = arguments<wire::FetchTasks>(call);
  if (call.in.failed || !call.allowed()) return Outcome::script;
  const u32 client = store_.cluster.findClient(args.client);
  if (client != 0 && store_.cluster.client(client).tasks > 0) return Outcome::script;
  WireWriter to = begin(call, 0);
  to.done(code::ok);
  to.length(0);
  to.end();
  return Outcome::answered;
}

void Operations::count(Op op, i32 outcome) {
  OperationMetrics& row = metrics[static_cast<u32>(op)];
  ++row.items;
  if (outcome != code::ok) ++row.failedItems;
}

WireWriter Operations::begin(const Invocation& call, std::size_t largest) const {
  WireWriter to(call.out);
  to.frame(call.request.seq, 0);
  to.body(call.declared.resultHash, largest, call.declared.literal);
  return to;
}

void Operations::outcomes(const Invocation& call, bool asList) {
  WireWriter to = begin(call, asList ? results_.size() : 0);
  if (asList) to.length(results_.size());
  for (const i32 outcome : results_) {
    count(call.op(), outcome);
    to.done(outcome);
  }
  to.end();
}

void Operations::descriptor(WireWriter& to, const Replica& replica, u64 size) const {
  constexpr u8 memory = 0, nof = 1, disk = 2, localDisk = 3;
  const Segment& segment = *store_.cluster.segment(replica.segment);
  to.put(store_.where.replicaID(replica));
  if (segment.shared()) {
    to.put(disk);
    to.text(store_.folder.pathOf(segment, store_.nodes[replica.node].offset));
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
  store_.table.eachReplica(index, [&](const Replica& replica) {
    const Segment& segment = *store_.cluster.segment(replica.segment);
    largest = std::max({largest, segment.protocol.size(), segment.endpoint.size(), segment.shared() ? store_.folder.pathOf(segment, 0).size() : 0});
  });
  return largest;
}

void Operations::descriptors(WireWriter& to, u32 index, bool readableOnly) const {
  std::size_t count = 0;
  store_.table.eachReplica(index, [&](const Replica& replica) { count += !readableOnly || store_.where.readable(replica); });
  to.length(count);
  // Memory comes first: Mooncake's clients read the first replica that they can. Most objects have no other, so one pass is enough.
  for (u32 rank = 0; count > 0 && rank < 3; ++rank)
    std::as_const(store_.table).eachReplica(index, [&](const Replica& replica) {
      const Segment* segment = store_.cluster.segment(replica.segment);
      const u32 own = segment == nullptr || segment->inMemory() ? 0 : segment->onDisk() ? 2 : 1;
      if (own != rank || (readableOnly && !store_.where.readable(replica))) return;
      descriptor(to, replica, store_.table[index].size);
      --count;
    });
}

}  // namespace svc
