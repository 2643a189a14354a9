// What kind of file system a path lies on, without asking that file system.
#pragma once
#include <cstdint>
#include <string>

namespace svc {

/**
 * Whether the kernel alone answers for each file system on the way to this path and for the one of this device, by its table of mounts. Others wait
 * for a process or a network, and whoever opens something there with them. Links in the path are not followed.
 */
bool kernelAnswersFor(const std::string& path, uint64_t device);

/** The same by a table of mounts that is given, for checks. */
bool kernelAnswersFor(const std::string& path, uint64_t device, const std::string& mountInfo);

}  // namespace svc
