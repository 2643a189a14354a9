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
  store_.eachReplica(index, [&](const Replica& replica) {
    if (replica.node == extra.taskSource) descriptor(to, replica, object.size);
  });
  if (optional) to.put(extra.taskTargets);
  else to.length(extra.taskTargets);
  store_.eachReplica(index, [&](const Replica& replica) {
    if (replica.status == ReplicaStatus::processing) descriptor(to, replica, object.size);
  });
}

void Operations::copy(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const Op op = declared.op;
  const bool move = op == Op::moveStart || op == Op::moveEnd || op == Op::moveRevoke;
  const TaskKind kind = move ? TaskKind::move : TaskKind::copy;
  const Uuid id = in.get<Uuid>();
  const std::string_view key = in.text();
  const u16 tenant = tenantOf(in, barred);
  if (op != Op::copyStart && op != Op::moveStart) {
    if (in.failed) return;
    results_.assign(1, barred);
    if (barred == code::ok) results_[0] = store_.copyEnd(id, tenant, key, kind, op == Op::copyRevoke || op == Op::moveRevoke);
    outcomes(declared, request, false, out);
    return;
  }
  const std::string_view source = in.text();
  keys_.clear();
  for (std::size_t left = move ? 1 : in.length(1); left > 0 && !in.failed; --left) keys_.push_back(in.text());
  if (in.failed) return;
  u32 index = 0;
  if (barred == code::ok) barred = store_.copyStart(id, tenant, key, source, keys_, kind, index);
  count(op, barred);
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, barred == code::ok ? std::max(keys_.size(), widest(index)) : 0, declared.literal);
  to.done(barred);
  if (barred == code::ok) copyBegun(to, index, move);
  to.end();
}

void Operations::beginCopies(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const Uuid id = in.get<Uuid>();
  const TaskKind kind = in.flag() ? TaskKind::move : TaskKind::copy;
  const std::size_t count = in.length(3);
  keys_.clear();
  sources_.clear();
  targets_.clear();
  sizes_.clear();
  for (std::size_t i = 0; i < count && !in.failed; ++i) {
    keys_.push_back(in.text());
    sources_.push_back(in.text());
    const std::size_t targets = in.length(1);
    for (std::size_t left = targets; left > 0 && !in.failed; --left) targets_.push_back(in.text());
    sizes_.push_back(targets);
  }
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return;
  if (barred == code::ok && count > mostCopies) barred = code::invalidParams;
  if (barred == code::ok) prefetch(tenant);
  found_.assign(count, 0);
  results_.assign(count, barred);
  std::size_t largest = std::max<std::size_t>(count, Store::mostReplicas), at = 0;
  for (std::size_t i = 0; i < count && barred == code::ok; at += sizes_[i++]) {
    const std::span<const std::string_view> targets(targets_.data() + at, sizes_[i]);
    const bool fits = kind == TaskKind::copy || targets.size() == 1;
    results_[i] = fits ? store_.copyStart(id, tenant, keys_[i], sources_[i], targets, kind, found_[i]) : code::invalidParams;
    if (results_[i] == code::ok) largest = std::max(largest, widest(found_[i]));
  }
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, largest, declared.literal);
  to.length(count);
  for (std::size_t i = 0; i < count; ++i) {
    this->count(declared.op, results_[i]);
    to.done(results_[i]);
    if (results_[i] != code::ok) continue;
    copyBegun(to, found_[i], false);
    const Extra& extra = store_.table.extras[store_.table[found_[i]].extra];
    to.put(static_cast<u8>(extra.hasChecksum));
    if (extra.hasChecksum) to.put(extra.checksum);
  }
  to.end();
}

void Operations::endCopies(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const Uuid id = in.get<Uuid>();
  const TaskKind kind = in.flag() ? TaskKind::move : TaskKind::copy;
  keys_.clear();
  for (std::size_t left = in.length(1); left > 0 && !in.failed; --left) keys_.push_back(in.text());
  const bool failed = in.flag();
  const u16 tenant = tenantOf(in, barred);
  if (in.failed) return;
  if (barred == code::ok && keys_.size() > mostCopies) barred = code::invalidParams;
  if (barred == code::ok) prefetch(tenant);
  results_.assign(keys_.size(), barred);
  for (std::size_t i = 0; i < keys_.size() && barred == code::ok; ++i) results_[i] = store_.copyEnd(id, tenant, keys_[i], kind, failed);
  outcomes(declared, request, true, out);
}

}  // namespace svc
