// Objects as files of a folder: whole or not there, each with what it is and a checksum behind its bytes; threads of its own wait for the disk.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base.h"

namespace svc {

//  FOLDER/pending/NNNNNNNN ──written──> FOLDER/NNNNNNNN    (eight hexadecimal digits: the file's number)
//  What nobody can compare with a checksum stays in both until `settle`: a start that finds it in both removes it.
//  file: bytes | about | trailer
struct FileTrailer {
  char magic[8] = {'s', 'v', 'c', 'f', 'i', 'l', 'e', '1'};
  u64 size = 0, checksum = 0;  // of the bytes
  u32 aboutBytes = 0, reserved = 0;
  u64 ownChecksum = 0;  // of `about` and of what precedes
};
static_assert(sizeof(FileTrailer) == 40);

struct FoundFile {
  u64 file = 0, size = 0, checksum = 0;
  std::string about;
};

class ObjectFiles {
 public:
  static constexpr std::size_t mostAbout = 1 << 20;

  // Throws std::runtime_error where the folder cannot be used, or another process uses it.
  ObjectFiles(const std::string& folder, u32 threads, bool syncs);
  // Does not wait for a disk that does not answer: what is under way ends by itself.
  ~ObjectFiles();
  ObjectFiles(const ObjectFiles&) = delete;
  ObjectFiles& operator=(const ObjectFiles&) = delete;

  // Run on one of its threads; `done` gets 0 or an errno. What the words name must stay until then.
  using Done = std::function<void(int error)>;
  // Triples of address, 0 and length. `checksum` is set before `done`; ECANCELED, and no file, where it is not the expected one.
  void write(u64 file, std::vector<u64> words, std::string about, std::optional<u64> expected, std::shared_ptr<u64> checksum, Done done);
  // What was written without an expected checksum is what it says, as its master knows.
  void settle(u64 file, Done done);
  void remove(u64 file, Done done);
  // EBADMSG where the bytes are not those that were stored.
  void verify(u64 file, Done done);
  // What it is, without reading its bytes; EBADMSG where that is damaged.
  void about(u64 file, std::shared_ptr<FoundFile> out, Done done);
  // Numbers of all files, in their order; what was left half written is gone. Also the number up to which none was ever given.
  void list(std::shared_ptr<std::vector<u64>> out, std::shared_ptr<u64> next, Done done);
  // No number below `next` is given after a restart.
  void reserve(u64 next, Done done);
  // Bytes of the file system: all, and those that are free to us.
  void space(std::shared_ptr<std::pair<u64, u64>> out, Done done);

 private:
  struct State;
  void add(u64 lane, std::function<int()> work, Done done);
  std::shared_ptr<State> state_;
};

}  // namespace svc
