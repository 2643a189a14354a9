// The operations by which our own clients remember what is in their memory, and report it to a master that lost its state.
#include <algorithm>

#include "rpc/operations.h"

namespace svc {

void Operations::takeChanges(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  const Uuid id = in.get<Uuid>();
  const bool fromStart = in.flag();
  const u32 most = in.get<u32>();
  if (in.failed) return;
  Changes changes;
  const i32 outcome = barred != code::ok ? barred : store_.takeChanges(id, fromStart, most, changes);
  count(declared.op, outcome);
  std::size_t largest = std::max(changes.gone.size(), changes.held.size());
  for (const auto& [index, address] : changes.held) {
    const Object& object = store_.table[index];
    largest = std::max({largest, std::size_t{object.keyBytes}, store_.groupName(object).size(), store_.fingerprintOf(object).size(), store_.tenants[object.tenant].name.size()});
  }
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, largest, declared.literal);
  to.done(outcome);
  if (outcome == code::ok) {
    to.put(store_.lineage());
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
      to.text(store_.fingerprintOf(object));
      to.text(store_.groupName(object));
      to.put(object.dataType);
      to.put(static_cast<u8>((object.flags & flag::hardPin) != 0));
    }
  }
  to.end();
}

void Operations::beginRestore(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  constexpr std::size_t leastSegment = sizeof(Uuid) + 2 * sizeof(u64) + 4;
  const Uuid id = in.get<Uuid>();
  const u64 lineage = in.get<u64>();
  std::vector<SegmentSpec> specs;
  for (std::size_t left = in.length(leastSegment); left > 0 && !in.failed; --left) {
    SegmentSpec spec;
    spec.id = in.get<Uuid>();
    spec.name = in.text();
    spec.base = in.get<u64>();
    spec.size = in.get<u64>();
    spec.endpoint = in.text();
    spec.protocol = in.text();
    spec.hostID = in.text();
    specs.push_back(spec);
  }
  if (in.failed) return;
  bool wanted = false;
  // A full disk refuses only a restore that is needed: a log of the same lineage already has the objects.
  const bool isNeeded = barred != code::persistFail || store_.wantsRestore(lineage);
  const i32 outcome = barred != code::ok && isNeeded ? barred : store_.beginRestore(id, lineage, specs, wanted);
  count(declared.op, outcome);
  WireWriter to(out);
  to.frame(request.seq, 0);
  to.body(declared.resultHash, 0, declared.literal);
  to.done(outcome);
  if (outcome == code::ok) {
    to.put(store_.lineage());
    to.put(static_cast<u8>(wanted));
  }
  to.end();
}

void Operations::restore(const Declared& declared, const Request& request, WireReader& in, i32 barred, std::string& out) {
  constexpr std::size_t leastObject = 5 * sizeof(u64) + 6;
  const Uuid id = in.get<Uuid>();
  std::vector<Restored> objects;
  for (std::size_t left = in.length(leastObject); left > 0 && !in.failed; --left) {
    Restored each;
    each.address = in.get<u64>();
    each.size = in.get<u64>();
    each.asOf = in.get<u64>();
    each.checksum = in.get<u64>();
    each.softPinUntilMs = in.get<u64>();
    each.tenant = in.text();
    each.key = in.text();
    each.fingerprint = in.text();
    each.group = in.text();
    each.dataType = in.get<u8>();
    each.hardPin = in.flag();
    objects.push_back(each);
  }
  const bool isLast = in.flag();
  if (in.failed) return;
  results_.assign(objects.size(), barred);
  for (std::size_t i = 0; i < objects.size() && barred == code::ok; ++i) results_[i] = store_.restore(id, objects[i]);
  if (isLast && barred == code::ok) store_.endRestore(id);
  outcomes(declared, request, true, out);
}

}  // namespace svc
