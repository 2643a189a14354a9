// Reads the topology from the kernel's device tree.
#include "topology.h"

#include <sys/syscall.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base.h"
#include "json.h"

namespace svc {

namespace {

namespace fs = std::filesystem;
constexpr unsigned long MPOL_F_NODE = 1, MPOL_F_ADDR = 2;

std::vector<std::string> entries(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/** Returns -1 if the device is not near a particular node. */
int numaNode(const fs::path& device) {
  std::ifstream file(device / "numa_node");
  int node = -1;
  file >> node;
  return node;
}

std::vector<int> numaNodes(const std::string& root) {
  std::vector<int> nodes;
  for (const auto& name : entries(root + "/devices/system/node"))
    if (name.rfind("node", 0) == 0 && name.size() > 4 && isdigit(name[4])) nodes.push_back(atoi(name.c_str() + 4));
  if (nodes.empty()) nodes.push_back(0);
  return nodes;
}

void add(Topology& topology, const std::string& location, int node, const std::vector<std::pair<std::string, int>>& devices) {
  auto& [preferred, others] = topology.matrix[location];
  for (const auto& [name, deviceNode] : devices) (deviceNode == node || deviceNode < 0 ? preferred : others).push_back(name);
}

}  // namespace

Topology discoverTopology(const std::vector<std::string>& filters, const std::string& root) {
  std::vector<std::pair<std::string, int>> devices;
  for (const auto& name : entries(root + "/class/infiniband"))
    if (filters.empty() || std::find(filters.begin(), filters.end(), name) != filters.end())
      devices.emplace_back(name, numaNode(root + "/class/infiniband/" + name + "/device"));
  Topology topology;
  for (int node : numaNodes(root)) add(topology, "cpu:" + std::to_string(node), node, devices);
  int index = 0;
  for (const auto& name : entries(root + "/bus/pci/drivers/nvidia"))
    if (name.find(':') != std::string::npos) add(topology, "cuda:" + std::to_string(index++), numaNode(root + "/bus/pci/drivers/nvidia/" + name), devices);
  return topology;
}

Topology readTopology(const Json& json) {
  Topology topology;
  for (const auto& [location, lists] : json.members()) {
    auto& [preferred, others] = topology.matrix[location];
    for (size_t i = 0; i < lists.items().size() && i < 2; i++)
      for (const auto& device : lists.items()[i].items()) (i == 0 ? preferred : others).push_back(device.text());
  }
  return topology;
}

bool fabricDevicesPresent(const std::string& root) { return !entries(root + "/class/infiniband").empty(); }

std::string locationOf(const void* address) {
  int node = -1;
  if (syscall(SYS_get_mempolicy, &node, nullptr, 0, address, MPOL_F_NODE | MPOL_F_ADDR) == 0 && node >= 0) return "cpu:" + std::to_string(node);
  auto nodes = numaNodes("/sys");
  // With a single node, all memory belongs to it.
  return nodes.size() == 1 && errno == ENOSYS ? "cpu:" + std::to_string(nodes[0]) : "";
}

bool isLocation(const std::string& text) {
  if (text == "*") return true;
  size_t colon = text.find(':');
  return colon != std::string::npos && colon > 0 && colon + 1 < text.size() && std::all_of(text.begin() + long(colon) + 1, text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string Topology::toJson() const {
  Json json = Json::object();
  for (const auto& [location, lists] : matrix) {
    Json preferred = Json::array(), others = Json::array();
    for (const auto& name : lists.first) preferred.push(name);
    for (const auto& name : lists.second) others.push(name);
    json.set(location, Json::Array{preferred, others});
  }
  return json.dump();
}

}  // namespace svc
