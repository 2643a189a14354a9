// One libfabric domain and endpoint: registration, posting, completions, deadlines.
#include "fabric_device.h"

#include <dlfcn.h>

#include <algorithm>
#include <vector>

#include "rdma_transport.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {
constexpr int WAIT_MS = 20;
constexpr size_t COMPLETIONS = 32;
/** The limit of peer addresses per device; each restart of a peer adds one. */
constexpr size_t MAX_ADDRESSES = 1 << 20;

bool check(const FabricLibrary& library, long code, const std::string& what) {
  if (code == 0) return true;
  setLastError(what + ": " + library.strerror(int(-code)));
  return false;
}
}  // namespace

const FabricLibrary* FabricLibrary::load() {
  static const FabricLibrary* loaded = []() -> const FabricLibrary* {
    void* handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) return nullptr;
    auto* library = new FabricLibrary();
    auto find = [&](auto& member, const char* name) { member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(dlsym(handle, name)); };
    find(library->getinfo, "fi_getinfo");
    find(library->freeinfo, "fi_freeinfo");
    find(library->dupinfo, "fi_dupinfo");
    find(library->fabric, "fi_fabric");
    find(library->strerror, "fi_strerror");
    return library->getinfo && library->freeinfo && library->dupinfo && library->fabric && library->strerror ? library : nullptr;
  }();
  if (loaded == nullptr) setLastError("libfabric.so.1 cannot be loaded; install libfabric (Debian: libfabric1)");
  return loaded;
}

std::unique_ptr<FabricDevice> FabricDevice::open(const FabricLibrary& library, fi_info* info) {
  auto device = std::make_unique<FabricDevice>();
  device->library_ = &library;
  device->info_ = info;
  device->name = info->domain_attr->name;
  device->provider = info->fabric_attr->prov_name;
  device->virtualAddress = (info->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  device->providerKeys_ = (info->domain_attr->mr_mode & FI_MR_PROV_KEY) != 0;
  device->needsEndpointBinding_ = (info->domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
  device->maxMessage = info->ep_attr->max_msg_size;
  std::string what = "device " + device->name + " (" + device->provider + ")";
  if (!check(library, library.fabric(info->fabric_attr, &device->fabric_, nullptr), what + ": fabric")) return nullptr;
  if (!check(library, fi_domain(device->fabric_, info, &device->domain_, nullptr), what + ": domain")) return nullptr;
  fi_av_attr addresses{};
  addresses.type = FI_AV_TABLE;
  if (!check(library, fi_av_open(device->domain_, &addresses, &device->addresses_, nullptr), what + ": address table")) return nullptr;
  fi_cq_attr completions{};
  completions.format = FI_CQ_FORMAT_CONTEXT;
  completions.wait_obj = FI_WAIT_UNSPEC;
  completions.size = 4096;
  if (!check(library, fi_cq_open(device->domain_, &completions, &device->completions_, nullptr), what + ": completion queue")) return nullptr;
  if (!check(library, fi_endpoint(device->domain_, info, &device->endpoint_, nullptr), what + ": endpoint")) return nullptr;
  if (!check(library, fi_ep_bind(device->endpoint_, &device->addresses_->fid, 0), what + ": binding") ||
      !check(library, fi_ep_bind(device->endpoint_, &device->completions_->fid, FI_TRANSMIT | FI_RECV), what + ": binding") ||
      !check(library, fi_enable(device->endpoint_), what + ": enabling"))
    return nullptr;
  char raw[256];
  size_t size = sizeof raw;
  if (!check(library, fi_getname(&device->endpoint_->fid, raw, &size), what + ": its address")) return nullptr;
  device->address = toHex(raw, size);
  return device;
}

void FabricDevice::start() {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "svc-rdma");
}

void FabricDevice::stop() {
  if (stopping_.exchange(true)) return;
  if (thread_.joinable()) thread_.join();
  if (endpoint_ != nullptr) fi_close(&endpoint_->fid);
  endpoint_ = nullptr;
  // The endpoint is closed, so nothing accesses the requests' memory any more.
  std::string why = "the rdma transport is stopping";
  {
    std::lock_guard lock(mutex_);
    waiting_.clear();
  }
  while (!flights_.empty()) finish(&flights_.front(), &why);
}

FabricDevice::~FabricDevice() {
  stop();
  for (auto& [start, region] : regions_) fi_close(&region->fid);
  if (completions_ != nullptr) fi_close(&completions_->fid);
  if (addresses_ != nullptr) fi_close(&addresses_->fid);
  if (domain_ != nullptr) fi_close(&domain_->fid);
  if (fabric_ != nullptr) fi_close(&fabric_->fid);
  if (info_ != nullptr) library_->freeinfo(info_);
}

bool FabricDevice::registerMemory(Buffer& buffer) {
  uint64_t access = FI_READ | FI_WRITE;
  if (buffer.remoteAccessible) access |= FI_REMOTE_READ | FI_REMOTE_WRITE;
  fid_mr* region = nullptr;
  std::lock_guard lock(mutex_);
  uint64_t key = providerKeys_ ? 0 : nextKey_++;
  long code = fi_mr_reg(domain_, reinterpret_cast<void*>(buffer.address), buffer.length, access, 0, key, 0, &region, nullptr);
  if (code == 0 && needsEndpointBinding_) {
    code = fi_mr_bind(region, &endpoint_->fid, 0);
    if (code == 0) code = fi_mr_enable(region);
  }
  if (code != 0) {
    std::string hint = code == -FI_ENOMEM ? "; the limit of locked memory (ulimit -l) may be too low" : "";
    return check(*library_, code, "device " + name + ": registering " + rangeText(buffer.address, buffer.length) + hint);
  }
  regions_[buffer.address] = region;
  buffer.localDescriptors.push_back(fi_mr_desc(region));
  if (buffer.remoteAccessible) buffer.remoteKeys.push_back(fi_mr_key(region));
  return true;
}

void FabricDevice::unregisterMemory(uint64_t start) {
  std::lock_guard lock(mutex_);
  auto found = regions_.find(start);
  if (found == regions_.end()) return;
  fi_close(&found->second->fid);
  regions_.erase(found);
}

fi_addr_t FabricDevice::insert(const std::string& peer) {
  std::lock_guard lock(mutex_);
  if (auto found = known_.find(peer); found != known_.end()) return found->second;
  std::string raw = fromHex(peer);
  fi_addr_t handle = FI_ADDR_UNSPEC;
  // The address of every provider contains at least a family and a port.
  if (raw.size() != address.size() / 2 || known_.size() >= MAX_ADDRESSES || fi_av_insert(addresses_, raw.data(), 1, &handle, 0, nullptr) != 1) return FI_ADDR_UNSPEC;
  known_[peer] = handle;
  return handle;
}

bool FabricDevice::tryPost(Flight& flight, int& error) {
  FabricRequest& request = flight.request;
  iovec part{reinterpret_cast<void*>(request.local), request.length};
  fi_rma_iov target{request.remote, request.length, request.key};
  fi_msg_rma message{&part, &request.descriptor, 1, request.peer, &target, 1, &flight.context, 0};
  uint64_t flags = FI_COMPLETION | (request.write ? info_->tx_attr->op_flags & FI_DELIVERY_COMPLETE : 0);
  long code = request.write ? fi_writemsg(endpoint_, &message, flags) : fi_readmsg(endpoint_, &message, flags);
  // There is no space or no connection yet. Some providers return this forever for a peer that is gone.
  if (code == -FI_EAGAIN) return false;
  error = int(code);
  flight.posted = code == 0;
  return true;
}

FabricDone FabricDevice::takeOut(Flight& flight) {
  FabricDone done;
  if (!flight.answered) done = std::move(flight.request.done);
  // We unpin before the answer, or a waiting caller could still find the buffer in use.
  flight.request.source->unpin();
  flights_.erase(flight.self);
  return done;
}

void FabricDevice::post(FabricRequest request) {
  int error = 0;
  FabricDone done;
  {
    std::lock_guard lock(mutex_);
    flights_.emplace_back();
    Flight& flight = flights_.back();
    flight.self = std::prev(flights_.end());
    flight.request = std::move(request);
    flight.request.source->pin();
    if (stopping_) error = -FI_ESHUTDOWN;
    else if (flight.request.owner->gone()) error = -FI_ECONNREFUSED;
    else if (waiting_.contains(flight.request.peer) || !tryPost(flight, error)) waiting_[flight.request.peer].push_back(&flight);
    if (error != 0) done = takeOut(flight);
  }
  if (!done) return;
  std::string why = std::string("posting: ") + library_->strerror(-error);
  done(&why);
}

void FabricDevice::finish(Flight* flight, const std::string* error) {
  FabricDone done;
  {
    std::lock_guard lock(mutex_);
    done = takeOut(*flight);
  }
  if (done) done(error);
}

void FabricDevice::giveUp(const std::function<bool(const FabricRequest&)>& over, const std::string& why) {
  std::vector<FabricDone> ended;
  {
    std::lock_guard lock(mutex_);
    // Requests that never reached the device end here, because they must not be posted later.
    for (auto line = waiting_.begin(); line != waiting_.end();) {
      std::erase_if(line->second, [&](Flight* flight) { return over(flight->request); });
      line = line->second.empty() ? waiting_.erase(line) : std::next(line);
    }
    for (auto each = flights_.begin(); each != flights_.end();) {
      Flight& flight = *each++;
      if (flight.answered || !over(flight.request)) continue;
      if (!flight.posted) {
        ended.push_back(takeOut(flight));
        continue;
      }
      flight.answered = true;
      ended.push_back(std::move(flight.request.done));
    }
  }
  for (auto& done : ended) done(&why);
}

void FabricDevice::abandon(const RdmaPeer& owner, const std::string& why) {
  giveUp([&](const FabricRequest& request) { return request.owner.get() == &owner; }, why);
}

void FabricDevice::drain() {
  std::vector<std::pair<FabricDone, int>> refused;
  {
    std::lock_guard lock(mutex_);
    for (auto line = waiting_.begin(); line != waiting_.end();) {
      auto& flights = line->second;
      for (int error = 0; !flights.empty() && tryPost(*flights.front(), error); error = 0) {
        if (error != 0) refused.emplace_back(takeOut(*flights.front()), error);
        flights.pop_front();
      }
      line = flights.empty() ? waiting_.erase(line) : std::next(line);
    }
  }
  for (auto& [done, error] : refused) {
    std::string why = std::string("posting: ") + library_->strerror(-error);
    done(&why);
  }
}

void FabricDevice::run() {
  fi_cq_entry entries[COMPLETIONS];
  uint64_t nextExpiry = 0;
  while (!stopping_) {
    ssize_t count = fi_cq_sread(completions_, entries, COMPLETIONS, nullptr, WAIT_MS);
    if (count == -FI_ENOSYS) {
      count = fi_cq_read(completions_, entries, COMPLETIONS);
      if (count == -FI_EAGAIN) usleep(50);
    }
    if (count == -FI_EAVAIL) {
      fi_cq_err_entry failure{};
      if (fi_cq_readerr(completions_, &failure, 0) > 0 && failure.op_context != nullptr) {
        std::string why = std::string(library_->strerror(failure.err)) + " (device " + name + ")";
        finish(static_cast<Flight*>(failure.op_context), &why);
      }
    }
    for (ssize_t i = 0; i < count; i++)
      if (entries[i].op_context != nullptr) finish(static_cast<Flight*>(entries[i].op_context), nullptr);
    drain();
    if (uint64_t now = nowMs(); now >= nextExpiry) {
      nextExpiry = now + WAIT_MS;
      giveUp([at = nowNs()](const FabricRequest& request) { return at >= request.deadlineNs; }, "timed out: no completion from device " + name);
    }
  }
}

}  // namespace svc
