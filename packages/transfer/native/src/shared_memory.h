// Memory of this process that others on the host can map, given by file and offset.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace svc {

struct SharedRange {
  std::string path;
  uint64_t offset = 0, inode = 0;
};

/** Returns the file from which peers can map this range; nothing for ordinary memory. */
std::optional<SharedRange> findShared(uint64_t address, uint64_t length);

}  // namespace svc
