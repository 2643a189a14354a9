// Serves slices of processes on this host: by mapped memory, otherwise by the kernel's copy; the rest goes to the next route.
#include "host_transport.h"

#include "shared_memory.h"

namespace svc {

RouteRef HostTransport::route(const RouteRequest& to, std::string& why) {
  if (to.record.isFile()) return nullptr;
  if (!to.record.host) return why = "the peer offers no memory on its host", nullptr;
  if (to.before) return to.before;
  auto peer = HostPeer::open(*to.record.host, options_.processVm, why);
  if (!peer) return nullptr;
  return std::make_shared<HostRoute>(std::static_pointer_cast<HostTransport>(shared_from_this()), to.segmentName, std::move(peer));
}

bool HostTransport::registerBuffer(Buffer& buffer) {
  // If all slots are taken, the buffer has none and is reachable only over the network.
  if (buffer.remoteAccessible && !buffer.revoked()) page_->take(buffer.slot, buffer.generation);
  return true;
}

void HostTransport::unregisterBuffer(Buffer& buffer) {
  if (buffer.slot >= 0) page_->close(buffer.slot);
}

void HostTransport::describe(const Buffer& buffer, PublishedBuffer& entry) const {
  if (buffer.slot < 0) return;
  entry.slot = uint64_t(buffer.slot);
  entry.generation = buffer.generation;
  auto range = findShared(buffer.address, buffer.length);
  if (!range) return;
  entry.mapPath = range->path;
  entry.mapOffset = range->offset;
  entry.mapInode = range->inode;
}

void HostRoute::copyByKernel(std::span<const Slice> run, std::vector<Slice>& rest) {
  if (run.empty()) return;
  std::string why;
  const size_t through = peer_->copyByKernel(run, why);
  uint64_t bytes = 0;
  for (const auto& slice : run.first(through)) bytes += slice.length;
  metrics_.count(Path::ProcessVm, through, bytes);
  metrics_.of(Path::ProcessVm).fallbacks.fetch_add(run.size() - through, std::memory_order_relaxed);
  for (const auto& slice : run.first(through)) finishSlice(*slice.task, slice.length, nullptr);
  rest.insert(rest.end(), run.begin() + ptrdiff_t(through), run.end());
}

Unfinished HostRoute::take(std::vector<Slice>& slices, Drive, uint64_t) {
  if (!peer_->alive()) {
    // The tcp route reports the loss itself, and recovers when the peer restarts.
    metrics_.of(Path::Shm).fallbacks.fetch_add(slices.size(), std::memory_order_relaxed);
    return {};
  }
  std::vector<Slice> rest;
  // The slices from `from` on are for the kernel, all in one direction.
  size_t from = 0;
  auto flush = [&](size_t to) { copyByKernel(std::span(slices).subspan(from, to - from), rest); };
  for (size_t i = 0; i < slices.size(); i++) {
    const Slice& slice = slices[i];
    const bool hasSlot = slice.buffer != nullptr && slice.buffer->slot;
    const bool isMapped = hasSlot && !slice.buffer->mapPath.empty();
    if (i > from && (isMapped || !hasSlot || slices[from].write != slice.write)) {
      flush(i);
      from = i;
    }
    if (isMapped) {
      std::string why;
      if (peer_->copyMapped(slice, why)) {
        completeSlice(metrics_, Path::Shm, slice);
        from = i + 1;
        continue;
      }
      metrics_.of(Path::Shm).fallbacks.fetch_add(1, std::memory_order_relaxed);
    }
    if (hasSlot && peer_->processVm()) continue;
    rest.push_back(slice);
    from = i + 1;
  }
  flush(slices.size());
  slices.swap(rest);
  return {};
}

std::string HostRoute::explain(const PublishedBuffer* buffer, std::string& passed) {
  std::string why;
  if (buffer == nullptr) return passed += "not shm or process_vm (the range is in no published buffer)", "";
  if (peer_->map(*buffer, why) != nullptr) return "shm: the peer's buffer is mapped";
  passed += "not shm (" + why + ")";
  if (peer_->processVm() && buffer->slot) return "process_vm: the kernel copies between the processes";
  passed += ", not process_vm (" + (buffer->slot ? peer_->processVmRefusal() : "the buffer has no slot") + ")";
  return "";
}

}  // namespace svc
