// Objects as files of a folder, complete or absent, each followed by its description and a checksum; worker threads wait for the disk.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/base.h"

namespace svc {

//  FOLDER/pending/NNNNNNNN ──written──> FOLDER/NNNNNNNN    (eight hexadecimal digits: the file's number)
//  A file without an expected checksum stays in both folders until `settle`; a start that finds it in both removes it.
//  file: bytes | about | trailer
struct FileTrailer {
  char magic[8] = {'s', 'v', 'c', 'f', 'i', 'l', 'e', '1'};
  u64 size = 0, checksum = 0;  // of the bytes
  u32 aboutBytes = 0, reserved = 0;
  u64 ownChecksum = 0;  // over `about` and the fields before
};
static_assert(sizeof(FileTrailer) == 40);

struct FoundFile {
  u64 file = 0, size = 0, checksum = 0;
  std::string about;
};

class ObjectFiles {
 public:
  static constexpr std::size_t mostAbout = 1 << 20;

  // Throws std::runtime_error if the folder cannot be used or another process uses it.
  ObjectFiles(const std::string& folder, u32 threads, bool syncs);
  // Does not wait for a disk that hangs; running work ends by itself.
  ~ObjectFiles();
  ObjectFiles(const ObjectFiles&) = delete;
  ObjectFiles& operator=(const ObjectFiles&) = delete;

  // Work runs on threads of its own; `done` gets 0 or an errno. The memory that `words` names must stay valid until then.
  using Done = std::function<void(int error)>;
  // `words` has triples of address, 0 and length. `checksum` is set before `done`; ECANCELED, and no file, if it differs from `expected`.
  void write(u64 file, std::vector<u64> words, std::string about, std::optional<u64> expected, std::shared_ptr<u64> checksum, Done done);
  // Confirms a file that was written without an expected checksum: its master has accepted it.
  void settle(u64 file, Done done);
  void remove(u64 file, Done done);
  // Gives EBADMSG if the bytes are not those that were stored.
  void verify(u64 file, Done done);
  // Reads its description without its bytes; EBADMSG if the description is damaged.
  void about(u64 file, std::shared_ptr<FoundFile> out, Done done);
  // Lists the numbers of all files in order, and removes partly written ones. No number from `next` on was ever assigned.
  void list(std::shared_ptr<std::vector<u64>> out, std::shared_ptr<u64> next, Done done);
  // Ensures that no number below `next` is assigned after a restart.
  void reserve(u64 next, Done done);
  // Bytes of the file system: total, and available to us.
  void space(std::shared_ptr<std::pair<u64, u64>> out, Done done);

 private:
  struct State;
  void add(u64 lane, std::function<int()> work, Done done);
  std::shared_ptr<State> state_;
};

}  // namespace svc
