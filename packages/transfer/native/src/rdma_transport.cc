// Chooses devices, registers buffers with each, and builds routes to peers.
#include "rdma_transport.h"

#include <algorithm>
#include <cstring>

#include "fabric_device.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {
constexpr size_t MAX_DEVICES = 16;

/** Returns the infos of a provider with one-sided transfers; those that guarantee delivery of writes come first. */
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

RdmaTransport::RdmaTransport(Metrics& metrics, RouteOwner& owner) : InstalledTransport("rdma"), metrics_(metrics), owner_(owner) {}

std::shared_ptr<RdmaTransport> RdmaTransport::open(const std::string& provider, const std::vector<std::string>& filters, Metrics& metrics, RouteOwner& owner) {
  const FabricLibrary* library = FabricLibrary::load();
  if (library == nullptr) return nullptr;
  std::vector<std::string> providers{"verbs;ofi_rxm", "efa"};
  // Other providers run over ordinary sockets, which rdma is meant to avoid, so they must be named explicitly.
  if (!provider.empty()) providers = {provider};
  std::shared_ptr<RdmaTransport> transport(new RdmaTransport(metrics, owner));
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

RdmaTransport::~RdmaTransport() { end(); }
void RdmaTransport::end() {
  for (auto& device : devices_) device->stop();
}

void RdmaTransport::describe(SegmentDescriptor& record) const {
  record.protocol = "rdma";
  for (const auto& device : devices_) record.devices.push_back({device->name, 0, ""});
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

std::optional<Json> RdmaTransport::answerExchange(const Json& payload) {
  connect(payload);
  return endpoint();
}

std::vector<RdmaPeer::Link> RdmaTransport::connect(const Json& payload) {
  std::vector<RdmaPeer::Link> links;
  const auto& theirs = payload["devices"].items();
  for (size_t i = 0; i < devices_.size(); i++) {
    // Our first device uses their first, and so on; the devices of a host with fewer are used several times.
    for (size_t k = 0; k < theirs.size(); k++) {
      size_t other = (i + k) % theirs.size();
      if (theirs[other]["provider"].text() != devices_[i]->provider) continue;
      fi_addr_t handle = devices_[i]->insert(theirs[other]["address"].text());
      if (handle == FI_ADDR_UNSPEC) continue;
      links.push_back({i, handle, other, theirs[other]["virtual"].truth()});
      break;
    }
  }
  return links;
}

RouteRef RdmaTransport::route(const RouteRequest& to, std::string& why) {
  if (to.record.isFile()) return nullptr;
  if (to.record.devices.empty()) return why = "the peer has no rdma device", nullptr;
  if (to.before && !static_cast<RdmaPeer&>(*to.before).gone()) return to.before;
  auto payload = to.exchange(endpoint(), why);
  if (!payload) return nullptr;
  auto links = connect(*payload);
  if (links.empty()) return why = "the peer has no device of our provider " + devices_[0]->provider, nullptr;
  return std::make_shared<RdmaPeer>(std::static_pointer_cast<RdmaTransport>(shared_from_this()), to.segmentName, to.id, std::move(links));
}

}  // namespace svc
