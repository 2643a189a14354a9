// Which network devices lie near which memory: NUMA nodes and devices as the kernel shows them.
#pragma once
#include <string>
#include <vector>

#include "json.h"
#include "svc/transfer_engine.h"

namespace svc {

/** Every `cpu:N` (and `cuda:N` where GPUs are) with its preferred and other devices. `root` stands for /sys in tests. */
Topology discoverTopology(const std::vector<std::string>& filters, const std::string& root = "/sys");
/** The reverse of Topology::toJson; members of another form are left out. */
Topology readTopology(const Json& json);
/** An RDMA-class device is in the host. */
bool fabricDevicesPresent(const std::string& root = "/sys");
/** `cpu:N` of the page at this address; empty when the kernel does not say. */
std::string locationOf(const void* address);
/** `cpu:0`, `cuda:1`, …, or `*`. */
bool isLocation(const std::string& text);

}  // namespace svc
