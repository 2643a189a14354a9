// Files of a folder that several hosts may share: each whole or not there, and none outside of the folder whatever its name says.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base.h"

namespace svc {

class SharedFiles {
 public:
  static constexpr u64 mostQueuedBytes = u64{256} << 20;
  static constexpr std::size_t mostQueued = 4'096, longestName = 4'096;

  // `folder` is looked at by each call anew: it may be a mount that comes and goes.
  SharedFiles(std::string folder, u32 threads);
  // What a file system that does not answer holds up ends by itself.
  ~SharedFiles();
  SharedFiles(const SharedFiles&) = delete;
  SharedFiles& operator=(const SharedFiles&) = delete;

  // Run on one of its threads; `done` gets 0 or an errno: EAGAIN at once where too much waits, ENODEV where the folder is not there, EINVAL for a
  // name that would lead out of it. Names are relative, parts joined by '/'; no part of them is followed as a symbolic link.
  using Done = std::function<void(int error)>;
  // Written beside its place, where nobody else may be writing it, and renamed; folders on the way are made. With `syncs` it is on the device before `done`.
  void write(std::string name, std::string bytes, bool syncs, Done done);
  // EBADMSG where it has another size.
  void read(std::string name, u64 size, std::shared_ptr<std::string> out, Done done);
  // Also what was left half written; one that is not there is as good as removed.
  void remove(std::string name, Done done);
  // The checksum of its bytes; EBADMSG where it has another size.
  void verify(std::string name, u64 size, std::shared_ptr<u64> checksum, Done done);
  // Bytes of the file system: all, and those that are free to us.
  void space(std::shared_ptr<std::pair<u64, u64>> out, Done done);

 private:
  struct State;
  void add(u64 bytes, std::function<int(const std::string& folder)> work, Done done);
  std::shared_ptr<State> state_;
};

}  // namespace svc
