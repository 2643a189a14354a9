// Requests to one peer over rdma: cut into parts and spread over the links between its devices and ours.
#include <algorithm>

#include "fabric_device.h"
#include "rdma_transport.h"

namespace svc {

namespace {
/** The maximum size of the parts of a request. */
constexpr uint64_t PART_BYTES = 8 << 20;

struct Parts {
  std::atomic<uint64_t> left;
  std::mutex mutex;
  std::string error;
};
}  // namespace

RdmaPeer::RdmaPeer(std::shared_ptr<RdmaTransport> made, const std::string& name, SegmentID id, std::vector<Link> links) : Route(made, name), rdma_(*made), id_(id), links_(std::move(links)) {}

Unfinished RdmaPeer::take(std::vector<Slice>& slices, Drive, uint64_t) {
  std::vector<Slice> taken, rest;
  for (const auto& slice : slices) (slice.buffer != nullptr && !slice.buffer->remoteKeys.empty() ? taken : rest).push_back(slice);
  slices.swap(rest);
  for (const auto& slice : taken) post(slice);
  return {};
}

void RdmaPeer::post(const Slice& slice) {
  // Devices near the memory are preferred; equal ones are used in rotation.
  std::vector<const Link*> links;
  const Topology& topology = rdma_.topology_;
  auto near = topology.matrix.find(slice.task->source->location);
  for (const auto& link : links_) {
    const std::string& name = rdma_.devices_[link.device]->name;
    if (near == topology.matrix.end() || std::find(near->second.first.begin(), near->second.first.end(), name) != near->second.first.end()) links.push_back(&link);
  }
  if (links.empty())
    for (const auto& link : links_) links.push_back(&link);

  auto self = std::static_pointer_cast<RdmaPeer>(shared_from_this());
  const PublishedBuffer& buffer = *slice.buffer;
  Buffer* source = slice.task->source;
  uint64_t partBytes = PART_BYTES;
  for (const auto* link : links) partBytes = std::min(partBytes, std::max<uint64_t>(rdma_.devices_[link->device]->maxMessage, 1));
  auto parts = std::make_shared<Parts>();
  parts->left = (slice.length + partBytes - 1) / partBytes;
  if (inFlight_.fetch_add(1, std::memory_order_relaxed) == 0) movedAtMs_ = nowMs();
  for (uint64_t at = 0; at < slice.length; at += partBytes) {
    const Link& link = *links[rdma_.next_.fetch_add(1, std::memory_order_relaxed) % links.size()];
    FabricRequest request;
    request.local = slice.local + at;
    request.remote = (link.virtualAddress ? slice.remote : slice.remote - buffer.address) + at;
    request.length = std::min(partBytes, slice.length - at);
    request.key = buffer.remoteKeys[std::min(link.remoteDevice, buffer.remoteKeys.size() - 1)];
    request.deadlineNs = slice.deadlineNs;
    request.peer = link.handle;
    request.owner = self;
    request.descriptor = source->localDescriptors[link.device];
    request.write = slice.write;
    request.source = source;
    request.done = [self, parts, slice](const std::string* error) {
      if (error != nullptr) {
        std::lock_guard lock(parts->mutex);
        parts->error = *error;
      } else {
        self->movedAtMs_.store(nowMs(), std::memory_order_relaxed);
      }
      if (parts->left.fetch_sub(1) != 1) return;
      self->inFlight_.fetch_sub(1, std::memory_order_relaxed);
      self->ended(slice, parts->error.empty() ? nullptr : &parts->error);
    };
    rdma_.devices_[link.device]->post(std::move(request));
  }
}

void RdmaPeer::ended(const Slice& slice, const std::string* error) {
  if (error == nullptr) completeSlice(rdma_.metrics_, Path::Rdma, slice);
  else rdma_.owner_.gaveUp(id_, shared_from_this(), slice, *error);
}

void RdmaPeer::close(const std::string& why) {
  gone_ = true;
  for (auto& device : rdma_.devices_) device->abandon(*this, why);
}

std::string RdmaPeer::explain(const PublishedBuffer* buffer, std::string& passed) {
  if (buffer != nullptr && !buffer->remoteKeys.empty()) return "rdma: device " + rdma_.devices_[links_[0].device]->name;
  return passed += "not rdma (the buffer has no key)", "";
}

}  // namespace svc
