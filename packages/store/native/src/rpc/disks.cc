// The operations that our own owners of disks repeat while they store: taking orders and reporting files.
#include <algorithm>

#include "rpc/operations.h"

namespace svc {

namespace {

// An object that an owner is to store or to bring back to memory, in wire form.
struct Order {
  u32 index, task;
  u64 address, file;
};

template <typename T>
std::vector<T> taken(std::vector<T>& from, std::size_t most) {
  const auto end = from.begin() + static_cast<std::ptrdiff_t>(std::min(most, from.size()));
  std::vector<T> out(from.begin(), end);
  from.erase(from.begin(), end);
  return out;
}

std::size_t widestOf(const Store& store, const std::vector<Order>& orders) {
  std::size_t largest = orders.size();
  for (const Order& each : orders) {
    const Object& object = store.table[each.index];
    largest = std::max({largest, std::size_t{object.keyBytes}, store.groups.nameOf(object).size(), store.objects.fingerprintOf(object).size(), store.tenants[object.tenant].name.size()});
  }
  return largest;
}

void put(WireWriter& to, const Store& store, const std::vector<Order>& orders) {
  to.length(orders.size());
  for (const Order& each : orders) {
    const Object& object = store.table[each.index];
    const Extra* extra = object.extra == 0 ? nullptr : &store.table.extras[object.extra];
    to.text(store.tenants[object.tenant].name);
    to.text(store.table.keyOf(each.index));
    to.text(store.objects.fingerprintOf(object));
    to.text(store.groups.nameOf(object));
    to.put(object.size);
    to.put(each.address);
    to.put(each.file);
    to.put(each.task);
    const bool hasChecksum = extra != nullptr && extra->hasChecksum;
    to.put(static_cast<u8>(hasChecksum));
    if (hasChecksum) to.put(extra->checksum);
    to.put(object.dataType);
    to.put(static_cast<u8>((object.flags & flag::hardPin) != 0));
  }
}

}  // namespace

void Operations::takeDiskOrders(Invocation& call) {
  const auto& args = arguments<wire::TakeDiskOrders>(call);
  if (call.in.failed) return;
  Segment* disk = call.allowed() ? store_.disks.diskOf(args.client, args.disk) : nullptr;
  const i32 outcome = !call.allowed() ? call.barred : disk == nullptr ? i32{code::segmentNotFound} : i32{code::ok};
  count(call.op(), outcome);
  std::vector<Order> offload, promote;
  std::vector<u64> drop;
  std::vector<Disk::Report> reported;
  if (outcome == code::ok) {
    for (const Disk::Offload& each : store_.disks.takeOffloads(*disk, args.offloads)) offload.push_back({each.index, each.task, each.address, 0});
    for (const u32 index : store_.disks.takePromotions(*disk, std::min(args.others, store_.settings.promoteAtOnce)))
      promote.push_back({index, 0, 0, store_.nodes[store_.where.fileOn(index, *disk)->node].offset});
    // The removal of files is logged, so it needs space in the log.
    if (call.log->hasSpace(u64{1} << 20, store_.nowMs())) drop = store_.disks.takeDropped(*disk, args.others);
    reported = taken(disk->disk->reported, args.others);
  }
  std::size_t largest = std::max({widestOf(store_, offload), widestOf(store_, promote), drop.size(), reported.size()});
  for (const Disk::Report& each : reported) largest = std::max({largest, each.key.size(), store_.tenants[each.tenant].name.size()});
  WireWriter to = begin(call, largest);
  to.done(outcome);
  if (outcome == code::ok) {
    put(to, store_, offload);
    put(to, store_, promote);
    to.length(drop.size());
    for (const u64 file : drop) to.put(file);
    to.length(reported.size());
    for (const Disk::Report& each : reported) {
      to.text(store_.tenants[each.tenant].name);
      to.text(each.key);
      to.put(each.file);
    }
  }
  to.end();
}

void Operations::keepFiles(Invocation& call) {
  const auto& args = arguments<wire::KeepFiles>(call);
  if (call.in.failed) return;
  results_.assign(args.files.size(), call.barred);
  for (std::size_t i = 0; i < args.files.size() && call.allowed(); ++i) {
    // The disk may be unmounted by now; each result still keeps its position in the list.
    Segment* disk = store_.disks.diskOf(args.client, args.disk);
    results_[i] = disk == nullptr ? i32{code::segmentNotFound} : store_.disks.keepFile(*disk, store_.tenants.numberOf(args.files[i].tenant), args.files[i]);
  }
  outcomes(call, true);
}

}  // namespace svc
