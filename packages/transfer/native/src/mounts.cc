// Parses the kernel's table of mounts.
#include "mounts.h"

#include <sys/sysmacros.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <sstream>

namespace svc {

namespace {
constexpr const char* KERNEL_ALONE[] = {"ext2", "ext3", "ext4", "xfs", "btrfs", "tmpfs", "devtmpfs", "ramfs", "rootfs", "overlay", "f2fs", "zfs"};

/** The table writes a space, tab, line feed or backslash in a path as a backslash and three octal digits. */
std::string unescaped(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    unsigned code = 0;
    if (text[i] == '\\' && sscanf(text.c_str() + i, "\\%3o", &code) == 1) {
      out += char(code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool leadsTo(const std::string& mountPoint, const std::string& path) {
  return mountPoint == "/" || (path.starts_with(mountPoint) && (path.size() == mountPoint.size() || path[mountPoint.size()] == '/'));
}
}  // namespace

bool kernelAnswersFor(const std::string& path, uint64_t device, const std::string& mountInfo) {
  std::istringstream lines(mountInfo);
  // Fields: number, parent, major:minor, root, mount point, options, ... - type ...
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, parent, id, root, mountPoint, word, type;
    fields >> number >> parent >> id >> root >> mountPoint;
    while (fields >> word && word != "-") {}
    fields >> type;
    unsigned major = 0, minor = 0;
    if (type.empty() || sscanf(id.c_str(), "%u:%u", &major, &minor) != 2) continue;
    // Subvolumes have device numbers that no line lists, so the mounts along the path count as well.
    if (device != makedev(major, minor) && !leadsTo(unescaped(mountPoint), path)) continue;
    if (std::find(std::begin(KERNEL_ALONE), std::end(KERNEL_ALONE), type) == std::end(KERNEL_ALONE)) return false;
  }
  return true;
}

bool kernelAnswersFor(const std::string& path, uint64_t device) {
  std::ifstream file("/proc/self/mountinfo");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  return kernelAnswersFor(path, device, text);
}

}  // namespace svc
