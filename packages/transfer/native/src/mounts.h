// The kind of file system of a path, determined without accessing that file system.
#pragma once
#include <cstdint>
#include <string>

namespace svc {

/**
 * Returns whether the kernel alone serves each file system on the way to this path and the one of this device, according to the table of
 * mounts. Other file systems wait for a process or a network, and block anyone who opens a file there. Symbolic links in the path are not
 * followed.
 */
bool kernelAnswersFor(const std::string& path, uint64_t device);

/** The same for a given table of mounts, for checks. */
bool kernelAnswersFor(const std::string& path, uint64_t device, const std::string& mountInfo);

}  // namespace svc
