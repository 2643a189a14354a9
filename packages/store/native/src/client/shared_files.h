// Files of a folder that several hosts may share: complete or absent, and never outside of the folder, whatever their name.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/base.h"

namespace svc {

class SharedFiles {
 public:
  static constexpr u64 mostQueuedBytes = u64{256} << 20;
  static constexpr std::size_t mostQueued = 4'096, longestName = 4'096;

  // Each call opens `folder` again, since it may be a mount that comes and goes.
  SharedFiles(std::string folder, u32 threads);
  // Does not wait for a file system that hangs; running work ends by itself.
  ~SharedFiles();
  SharedFiles(const SharedFiles&) = delete;
  SharedFiles& operator=(const SharedFiles&) = delete;

  // Work runs on threads of its own; `done` gets 0 or an errno: EAGAIN at once if too much is queued, ENODEV if the folder is missing,
  // EINVAL for a name that would lead out of it. Names are relative, with parts joined by '/'; symbolic links are not followed.
  using Done = std::function<void(int error)>;
  // Writes a temporary file next to the final name, which must have one writer at a time, and renames it; missing folders are created. With
  // `syncs` the file is on the device before `done`.
  void write(std::string name, std::string bytes, bool syncs, Done done);
  // Gives EBADMSG if the file has another size.
  void read(std::string name, u64 size, std::shared_ptr<std::string> out, Done done);
  // Removes a partly written file too; a missing file counts as removed.
  void remove(std::string name, Done done);
  // Computes the checksum of its bytes; EBADMSG if it has another size.
  void verify(std::string name, u64 size, std::shared_ptr<u64> checksum, Done done);
  // Bytes of the file system: total, and available to us.
  void space(std::shared_ptr<std::pair<u64, u64>> out, Done done);

 private:
  struct State;
  void add(u64 bytes, std::function<int(const std::string& folder)> work, Done done);
  std::shared_ptr<State> state_;
};

}  // namespace svc
