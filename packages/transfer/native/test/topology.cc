// Reads a topology from a made-up device tree, and the priority matrix back from its JSON.
#include "topology.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

using namespace svc;
namespace fs = std::filesystem;

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  fs::path root = argv[1];
  for (const char* node : {"node0", "node1"}) fs::create_directories(root / "devices/system/node" / node);
  for (auto [name, node] : {std::pair("mlx5_0", 0), {"mlx5_1", 1}, {"mlx5_2", -1}}) {
    fs::create_directories(root / "class/infiniband" / name / "device");
    std::ofstream(root / "class/infiniband" / name / "device/numa_node") << node << "\n";
  }
  fs::create_directories(root / "bus/pci/drivers/nvidia/0000:81:00.0");
  std::ofstream(root / "bus/pci/drivers/nvidia/0000:81:00.0/numa_node") << 1 << "\n";
  std::string all = discoverTopology({}, root).toJson();
  std::string wanted = R"({"cpu:0":[["mlx5_0","mlx5_2"],["mlx5_1"]],"cpu:1":[["mlx5_1","mlx5_2"],["mlx5_0"]],"cuda:0":[["mlx5_1","mlx5_2"],["mlx5_0"]]})";
  std::string some = discoverTopology({"mlx5_1"}, root).toJson();
  bool good = all == wanted && some == R"({"cpu:0":[[],["mlx5_1"]],"cpu:1":[["mlx5_1"],[]],"cuda:0":[["mlx5_1"],[]]})" && fabricDevicesPresent(root) && !fabricDevicesPresent(root / "none") &&
              readTopology(*Json::parse(wanted)).toJson() == wanted && isLocation("*") && isLocation("cpu:12") && !isLocation("cpu:") && !isLocation("cpu") && !isLocation(":1");
  puts(good ? "as it should be" : (all + "\n" + some).c_str());
  return good ? 0 : 1;
}
