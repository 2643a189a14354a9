// Memory of this process that others on the host can map: which file, at which offset.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace svc {

struct SharedRange {
  std::string path;
  uint64_t offset = 0, inode = 0;
};

/** Where peers map this range from; nothing when it is ordinary memory. */
std::optional<SharedRange> findShared(uint64_t address, uint64_t length);

}  // namespace svc
