// One device of the rdma transport: domain, endpoint, and the thread that reads its completions.
#pragma once
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "fabric_library.h"
#include "memory_registry.h"

namespace svc {

class RdmaPeer;
/** A null `error` means that the bytes have been transferred. */
using FabricDone = std::function<void(const std::string* error)>;

struct FabricRequest {
  uint64_t local = 0, remote = 0, length = 0, key = 0, deadlineNs = 0;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  std::shared_ptr<RdmaPeer> owner;
  void* descriptor = nullptr;
  bool write = false;
  /** The buffer stays pinned until the device has finished with it, which may be after the deadline. */
  Buffer* source = nullptr;
  FabricDone done;
};

struct FabricDevice {
  /** Takes ownership of `info`. Returns null with lastError() on failure. */
  static std::unique_ptr<FabricDevice> open(const FabricLibrary& library, fi_info* info);
  ~FabricDevice();
  void start();
  void stop();
  void post(FabricRequest request);
  bool registerMemory(Buffer& buffer);
  void unregisterMemory(uint64_t address);
  /** Ends the requests in flight to a peer that is gone, and refuses later ones. */
  void abandon(const RdmaPeer& owner, const std::string& why);
  /** Returns FI_ADDR_UNSPEC if the address is refused. */
  fi_addr_t insert(const std::string& address);

  std::string name, provider, address;
  bool virtualAddress = false;
  uint64_t maxMessage = 0;

 private:
  struct Flight {
    fi_context2 context{};
    FabricRequest request;
    std::list<Flight>::iterator self;
    /** True while the device may access the memory, until it reports completion. */
    bool posted = false;
    bool answered = false;
  };
  void run();
  /** Requires mutex_. Returns false if there is no space now. */
  bool tryPost(Flight& flight, int& error);
  /** Requires mutex_: the device has finished with the request, or never had it. */
  FabricDone takeOut(Flight& flight);
  void finish(Flight* flight, const std::string* error);
  /** Answers the requests that match `over`; the device continues with those it has. */
  void giveUp(const std::function<bool(const FabricRequest&)>& over, const std::string& why);
  void drain();

  const FabricLibrary* library_ = nullptr;
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_cq* completions_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  bool needsEndpointBinding_ = false, providerKeys_ = false;
  std::mutex mutex_;
  std::list<Flight> flights_;
  /** Waiting requests by peer, so that a stalled peer does not delay others. */
  std::map<fi_addr_t, std::deque<Flight*>> waiting_;
  std::map<uint64_t, fid_mr*> regions_;
  std::map<std::string, fi_addr_t> known_;
  uint64_t nextKey_ = 1;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
};

}  // namespace svc
