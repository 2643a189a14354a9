// The operations by which our own clients remember what is in their memory, and report it to a master that lost its state.
#include <algorithm>

#include "rpc/operations.h"

namespace svc {

void Operations::takeChanges(Invocation& call) {
  const auto& args = arguments<wire::TakeChanges>(call);
  if (call.in.failed) return;
  Changes changes;
  const i32 outcome = call.allowed() ? store_.restores.takeChanges(args.client, args.fromStart, args.most, changes) : call.barred;
  count(call.op(), outcome);
  std::size_t largest = std::max(changes.gone.size(), changes.held.size());
  for (const auto& [index, address] : changes.held) {
    const Object& object = store_.table[index];
    largest = std::max({largest, std::size_t{object.keyBytes}, store_.groups.nameOf(object).size(), store_.objects.fingerprintOf(object).size(), store_.tenants[object.tenant].name.size()});
  }
  WireWriter to = begin(call, largest);
  to.done(outcome);
  if (outcome == code::ok) {
    to.put(store_.restores.lineage());
    to.put(static_cast<u8>(changes.begins));
    to.put(static_cast<u8>(changes.isWhole));
    to.put(static_cast<u8>(changes.more));
    to.length(changes.gone.size());
    for (const u64 address : changes.gone) to.put(address);
    to.length(changes.held.size());
    for (const auto& [index, address] : changes.held) {
      const Object& object = store_.table[index];
      const Extra& extra = store_.table.extras[object.extra];
      to.put(address);
      to.put(object.size);
      to.put(store_.journal.nextLsn);
      to.put(extra.checksum);
      to.put(extra.softPinUntil == 0 ? u64{0} : store_.journal.epochMs + u64{extra.softPinUntil} * tickMs);
      to.text(store_.tenants[object.tenant].name);
      to.text(store_.table.keyOf(index));
      to.text(store_.objects.fingerprintOf(object));
      to.text(store_.groups.nameOf(object));
      to.put(object.dataType);
      to.put(static_cast<u8>((object.flags & flag::hardPin) != 0));
    }
  }
  to.end();
}

void Operations::beginRestore(Invocation& call) {
  const auto& args = arguments<wire::BeginRestore>(call);
  if (call.in.failed) return;
  bool wanted = false;
  // A full disk refuses only a restore that is needed: a log of the same lineage already has the objects.
  const bool isNeeded = call.barred != code::persistFail || store_.restores.wants(args.lineage);
  const i32 outcome = !call.allowed() && isNeeded ? call.barred : store_.restores.begin(args.client, args.lineage, args.segments, wanted);
  count(call.op(), outcome);
  WireWriter to = begin(call, 0);
  to.done(outcome);
  if (outcome == code::ok) {
    to.put(store_.restores.lineage());
    to.put(static_cast<u8>(wanted));
  }
  to.end();
}

void Operations::restore(Invocation& call) {
  const auto& args = arguments<wire::RestoreObjects>(call);
  if (call.in.failed) return;
  results_.assign(args.holdings.size(), call.barred);
  for (std::size_t i = 0; i < args.holdings.size() && call.allowed(); ++i) results_[i] = store_.restores.restore(args.client, args.holdings[i]);
  if (args.isLast && call.allowed()) store_.holders.endRestore(args.client);
  outcomes(call, true);
}

}  // namespace svc
