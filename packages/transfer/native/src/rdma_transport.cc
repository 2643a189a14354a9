// Devices chosen, buffers registered with each, and requests spread over the routes to a peer.
#include "rdma_transport.h"

#include <algorithm>
#include <cstring>

#include "fabric_device.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {
constexpr size_t MAX_DEVICES = 16;
/** One request is cut into pieces of at most this. */
constexpr uint64_t SLICE_BYTES = 8 << 20;

/** The infos of a provider that do one-sided transfers, the strictest promise about writes first. */
fi_info* findInfos(const FabricLibrary& library, const std::string& provider) {
  for (uint64_t promise : {uint64_t(FI_DELIVERY_COMPLETE), uint64_t(0)}) {
    fi_info* hints = library.dupinfo(nullptr);
    hints->caps = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->tx_attr->op_flags = promise;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    fi_info* found = nullptr;
    int code = library.getinfo(FI_VERSION(1, 14), nullptr, nullptr, 0, hints, &found);
    library.freeinfo(hints);
    if (code == 0 && found != nullptr) return found;
  }
  return nullptr;
}
}  // namespace

std::shared_ptr<RdmaTransport> RdmaTransport::open(const std::string& provider, const std::vector<std::string>& filters) {
  const FabricLibrary* library = FabricLibrary::load();
  if (library == nullptr) return nullptr;
  std::vector<std::string> providers{"verbs;ofi_rxm", "efa"};
  // Others run over the very sockets that rdma is asked for to avoid: only by name.
  if (!provider.empty()) providers = {provider};
  std::shared_ptr<RdmaTransport> transport(new RdmaTransport());
  std::string why;
  for (const auto& each : providers) {
    fi_info* all = findInfos(*library, each);
    for (fi_info* info = all; info != nullptr && transport->devices_.size() < MAX_DEVICES; info = info->next) {
      std::string name = info->domain_attr->name;
      bool known = std::any_of(transport->devices_.begin(), transport->devices_.end(), [&](const auto& device) { return device->name == name; });
      if (known || (!filters.empty() && std::find(filters.begin(), filters.end(), name) == filters.end())) continue;
      fi_info* own = library->dupinfo(info);
      own->next = nullptr;
      auto device = FabricDevice::open(*library, own);
      if (device) transport->devices_.push_back(std::move(device));
      else why = lastError();
    }
    if (all != nullptr) library->freeinfo(all);
    if (!transport->devices_.empty()) break;
  }
  if (transport->devices_.empty()) {
    std::string asked;
    for (const auto& each : providers) asked += (asked.empty() ? "" : ", ") + each;
    setLastError("installTransport rdma: no device of " + asked + " is here" + (filters.empty() ? "" : " that the filter lets through") + (why.empty() ? "" : "; " + why));
    return nullptr;
  }
  for (auto& device : transport->devices_) device->start();
  return transport;
}

RdmaTransport::~RdmaTransport() { stop(); }
void RdmaTransport::stop() {
  for (auto& device : devices_) device->stop();
}

std::vector<std::string> RdmaTransport::deviceNames() const {
  std::vector<std::string> names;
  for (const auto& device : devices_) names.push_back(device->name);
  return names;
}

bool RdmaTransport::registerBuffer(Buffer& buffer) {
  buffer.remoteKeys.clear();
  buffer.localDescriptors.clear();
  for (auto& device : devices_) {
    if (device->registerMemory(buffer)) continue;
    std::string why = lastError();
    unregisterBuffer(buffer);
    setLastError(why);
    return false;
  }
  return true;
}

void RdmaTransport::unregisterBuffer(Buffer& buffer) {
  for (auto& device : devices_) device->unregisterMemory(buffer.address);
  buffer.remoteKeys.clear();
  buffer.localDescriptors.clear();
}

Json RdmaTransport::endpoint() const {
  Json list = Json::array();
  for (const auto& device : devices_)
    list.push(Json::Object{{"name", device->name}, {"provider", device->provider}, {"address", device->address}, {"virtual", device->virtualAddress}});
  return Json::Object{{"devices", list}};
}

void RdmaTransport::accept(const Json& payload) {
  std::string ignored;
  connect(payload, ignored);
}

std::shared_ptr<RdmaPeer> RdmaTransport::connect(const Json& payload, std::string& why) {
  auto peer = std::make_shared<RdmaPeer>();
  const auto& theirs = payload["devices"].items();
  for (size_t i = 0; i < devices_.size(); i++) {
    // Our first device speaks with their first, and so on; a host with fewer is met several times.
    for (size_t k = 0; k < theirs.size(); k++) {
      size_t other = (i + k) % theirs.size();
      if (theirs[other]["provider"].text() != devices_[i]->provider) continue;
      fi_addr_t handle = devices_[i]->insert(theirs[other]["address"].text());
      if (handle == FI_ADDR_UNSPEC) continue;
      peer->routes.push_back({i, handle, other, theirs[other]["virtual"].truth()});
      break;
    }
  }
  if (!peer->routes.empty()) return peer;
  why = "the peer has no device of our provider " + devices_[0]->provider;
  return nullptr;
}

void RdmaTransport::abandon(RdmaPeer& peer, const std::string& why) {
  peer.gone = true;
  for (auto& device : devices_) device->abandon(peer, why);
}

void RdmaTransport::post(const std::shared_ptr<RdmaPeer>& peer, const std::string& location, const PublishedBuffer& buffer, const TcpPiece& piece, void* const* descriptors,
                         std::function<void(const std::string* error)> done) {
  // Devices near the memory first; among equals, each in turn.
  std::vector<const RdmaPeer::Route*> routes;
  auto near = topology_.matrix.find(location);
  for (const auto& route : peer->routes) {
    const std::string& name = devices_[route.device]->name;
    if (near == topology_.matrix.end() || std::find(near->second.first.begin(), near->second.first.end(), name) != near->second.first.end()) routes.push_back(&route);
  }
  if (routes.empty())
    for (const auto& route : peer->routes) routes.push_back(&route);

  struct Rest {
    std::atomic<uint64_t> left;
    std::mutex mutex;
    std::string error;
    std::shared_ptr<RdmaPeer> peer;
    std::function<void(const std::string*)> done;
  };
  auto rest = std::make_shared<Rest>();
  uint64_t slice = SLICE_BYTES;
  for (const auto* route : routes) slice = std::min(slice, std::max<uint64_t>(devices_[route->device]->maxMessage, 1));
  rest->left = (piece.length + slice - 1) / slice;
  rest->peer = peer;
  rest->done = std::move(done);
  if (peer->inFlight.fetch_add(1, std::memory_order_relaxed) == 0) peer->movedAtMs = nowMs();
  for (uint64_t at = 0; at < piece.length; at += slice) {
    const RdmaPeer::Route& route = *routes[next_.fetch_add(1, std::memory_order_relaxed) % routes.size()];
    FabricRequest request;
    request.local = piece.local + at;
    request.remote = (route.virtualAddress ? piece.remote : piece.remote - buffer.address) + at;
    request.length = std::min(slice, piece.length - at);
    request.key = buffer.remoteKeys[std::min(route.remoteDevice, buffer.remoteKeys.size() - 1)];
    request.deadlineNs = piece.deadlineNs;
    request.peer = route.handle;
    request.owner = peer;
    request.descriptor = descriptors[route.device];
    request.write = piece.write;
    request.source = piece.task->source;
    request.done = [rest](const std::string* error) {
      if (error != nullptr) {
        std::lock_guard lock(rest->mutex);
        rest->error = *error;
      } else {
        rest->peer->movedAtMs.store(nowMs(), std::memory_order_relaxed);
      }
      if (rest->left.fetch_sub(1) != 1) return;
      rest->peer->inFlight.fetch_sub(1, std::memory_order_relaxed);
      rest->done(rest->error.empty() ? nullptr : &rest->error);
    };
    devices_[route.device]->post(std::move(request));
  }
}

}  // namespace svc
