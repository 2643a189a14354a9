// The proximity of network devices to memory: NUMA nodes and devices as the kernel reports them.
#pragma once
#include <string>
#include <vector>

#include "json.h"
#include "svc/transfer_engine.h"

namespace svc {

/** Returns every `cpu:N` (and `cuda:N` with GPUs) with its preferred and other devices. `root` replaces /sys in tests. */
Topology discoverTopology(const std::vector<std::string>& filters, const std::string& root = "/sys");
/** The inverse of Topology::toJson; members of another form are ignored. */
Topology readTopology(const Json& json);
/** Returns whether the host has an RDMA device. */
bool fabricDevicesPresent(const std::string& root = "/sys");
/** Returns `cpu:N` for the page at this address; empty if the kernel does not say. */
std::string locationOf(const void* address);
/** Accepts `cpu:0`, `cuda:1`, … and `*`. */
bool isLocation(const std::string& text);

}  // namespace svc
