// Shared memory of this process, in one table for all engines, since memory belongs to the process.
#include "shared_memory.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <map>
#include <mutex>

#include "base.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {

struct Mapping {
  uint64_t length = 0, inode = 0;
  Fd fd;
};
std::mutex mutex;
std::map<uint64_t, Mapping>& mappings() {
  // The table is never destroyed, because buffers may outlive static destruction.
  static auto* all = new std::map<uint64_t, Mapping>();
  return *all;
}

void* keep(Fd fd, size_t size, const std::string& what) {
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  struct stat info{};
  if (base == MAP_FAILED || fstat(fd.get(), &info) != 0) {
    setLastError(what + ": mapping " + std::to_string(size) + " bytes: " + errnoText());
    return nullptr;
  }
  std::lock_guard lock(mutex);
  mappings()[reinterpret_cast<uint64_t>(base)] = {size, uint64_t(info.st_ino), std::move(fd)};
  return base;
}

std::string objectName(const std::string& name) { return name.empty() || name[0] != '/' ? "/" + name : name; }

bool nameIsGood(const std::string& name) {
  std::string bare = objectName(name).substr(1);
  if (!bare.empty() && bare.find('/') == std::string::npos && bare.size() < 255 && bare != "." && bare != "..") return true;
  setLastError("a shared memory object has a name without slashes of 1 to 254 characters, found \"" + name + "\"");
  return false;
}

}  // namespace

void* allocateShared(size_t size) {
  if (size == 0) {
    setLastError("allocating shared memory: the size is 0");
    return nullptr;
  }
  Fd fd(memfd_create("svc-transfer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), off_t(size)) != 0) {
    setLastError("allocating " + std::to_string(size) + " bytes of shared memory: " + errnoText());
    return nullptr;
  }
  // The seal prevents shrinking, which would crash a peer that has the memory mapped.
  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  return keep(std::move(fd), size, "allocating shared memory");
}

void* openShared(const std::string& name, size_t size, bool create) {
  if (!nameIsGood(name)) return nullptr;
  std::string object = objectName(name), what = "shared memory object " + object;
  if (size == 0) {
    setLastError(what + ": the size is 0");
    return nullptr;
  }
  Fd fd(shm_open(object.c_str(), O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0600));
  struct stat info{};
  if (!fd || fstat(fd.get(), &info) != 0) {
    setLastError(what + ": " + errnoText() + (create ? "" : "; create it first"));
    return nullptr;
  }
  if (uint64_t(info.st_size) < size) {
    // Only its creator may grow an existing object.
    if (!create || ftruncate(fd.get(), off_t(size)) != 0) {
      setLastError(what + ": expected " + std::to_string(size) + " bytes, it has " + std::to_string(info.st_size));
      return nullptr;
    }
  }
  return keep(std::move(fd), size, what);
}

int freeShared(void* address) {
  std::lock_guard lock(mutex);
  auto found = mappings().find(reinterpret_cast<uint64_t>(address));
  if (found == mappings().end()) return failWith(ERR_INVALID_ARGUMENT, hexAddress(reinterpret_cast<uint64_t>(address)) + " is not memory of allocateShared or openShared");
  munmap(address, found->second.length);
  mappings().erase(found);
  return 0;
}

int unlinkShared(const std::string& name) {
  if (!nameIsGood(name)) return ERR_INVALID_ARGUMENT;
  if (shm_unlink(objectName(name).c_str()) == 0) return 0;
  return failWith(ERR_INVALID_ARGUMENT, "removing shared memory object " + objectName(name) + ": " + errnoText());
}

std::optional<SharedRange> findShared(uint64_t address, uint64_t length) {
  std::lock_guard lock(mutex);
  auto after = mappings().upper_bound(address);
  if (after == mappings().begin()) return std::nullopt;
  auto& [base, mapping] = *std::prev(after);
  if (!inside(base, mapping.length, address, length)) return std::nullopt;
  return SharedRange{"/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(mapping.fd.get()), address - base, mapping.inode};
}

}  // namespace svc
