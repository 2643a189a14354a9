// Copies and moves of replicas, begun and ended by the client that moves the bytes: one, as Mooncake's clients do, or many at once.
#include <algorithm>

#include "rpc/operations.h"

namespace svc {

namespace {
// The limit of one call, whose records must fit into the log space that was checked before.
constexpr std::size_t mostCopies = 256;
}  // namespace

// Writes the source and the targets. A move has an optional target, a copy has a list of them: both begin with a count.
void Operations::copyBegun(WireWriter& to, u32 index, bool optional) const {
  const Object& object = store_.table[index];
  const Extra& extra = store_.table.extras[object.extra];
  store_.table.eachReplica(index, [&](const Replica& replica) {
    if (replica.node == extra.taskSource) descriptor(to, replica, object.size);
  });
  if (optional) to.put(extra.taskTargets);
  else to.length(extra.taskTargets);
  store_.table.eachReplica(index, [&](const Replica& replica) {
    if (replica.status == ReplicaStatus::processing) descriptor(to, replica, object.size);
  });
}

void Operations::copyStart(Invocation& call) {
  Uuid id;
  std::string_view key, source;
  std::span<const std::string_view> targets;
  const bool move = call.op() == Op::moveStart;
  const auto take = [&](const auto& args) {
    id = args.client;
    key = args.key;
    source = args.source;
    if constexpr (requires { args.targets; }) targets = args.targets;
    else targets = {&args.target, 1};
  };
  if (move) take(arguments<wire::MoveStart>(call));
  else take(arguments<wire::CopyStart>(call));
  if (call.in.failed) return;
  u32 index = 0;
  if (call.allowed()) call.barred = store_.copies.start(id, call.tenant, key, source, targets, move ? TaskKind::move : TaskKind::copy, index);
  count(call.op(), call.barred);
  WireWriter to = begin(call, call.allowed() ? std::max(targets.size(), widest(index)) : 0);
  to.done(call.barred);
  if (call.allowed()) copyBegun(to, index, move);
  to.end();
}

void Operations::copyEnd(Invocation& call) {
  const auto& args = arguments<wire::CopyEnd>(call);
  if (call.in.failed) return;
  const TaskKind kind = call.op() == Op::moveEnd || call.op() == Op::moveRevoke ? TaskKind::move : TaskKind::copy;
  const bool revoke = call.op() == Op::copyRevoke || call.op() == Op::moveRevoke;
  runEach(call, std::span(&args.key, 1), [&](std::string_view key, std::size_t) { return store_.copies.end(args.client, call.tenant, key, kind, revoke); });
  outcomes(call, false);
}

void Operations::beginCopies(Invocation& call) {
  const auto& args = arguments<wire::BeginCopies>(call);
  if (call.in.failed) return;
  const std::size_t copies = args.requests.size();
  if (call.allowed() && copies > mostCopies) call.barred = code::invalidParams;
  found_.assign(copies, 0);
  std::size_t largest = std::max<std::size_t>(copies, Space::mostReplicas);
  runEach(call, args.requests, [&](const wire::CopyRequest& request, std::size_t i) {
    if (args.isMove && request.targets.size() != 1) return i32{code::invalidParams};
    const i32 outcome = store_.copies.start(args.client, call.tenant, request.key, request.source, request.targets, args.isMove ? TaskKind::move : TaskKind::copy, found_[i]);
    if (outcome == code::ok) largest = std::max(largest, widest(found_[i]));
    return outcome;
  });
  WireWriter to = begin(call, largest);
  to.length(copies);
  for (std::size_t i = 0; i < copies; ++i) {
    count(call.op(), results_[i]);
    to.done(results_[i]);
    if (results_[i] != code::ok) continue;
    copyBegun(to, found_[i], false);
    const Extra& extra = store_.table.extras[store_.table[found_[i]].extra];
    to.put(static_cast<u8>(extra.hasChecksum));
    if (extra.hasChecksum) to.put(extra.checksum);
  }
  to.end();
}

void Operations::endCopies(Invocation& call) {
  const auto& args = arguments<wire::EndCopies>(call);
  if (call.in.failed) return;
  if (call.allowed() && args.keys.size() > mostCopies) call.barred = code::invalidParams;
  const TaskKind kind = args.isMove ? TaskKind::move : TaskKind::copy;
  runEach(call, args.keys, [&](std::string_view key, std::size_t) { return store_.copies.end(args.client, call.tenant, key, kind, args.failed); });
  outcomes(call, true);
}

}  // namespace svc
