// Writes an object's bytes to a file, past the page cache where they are many: copying them there takes more of a processor than all the rest.
#pragma once
#include <sys/uio.h>

#include <memory>
#include <string_view>
#include <vector>

#include "checksum.h"

namespace svc {

/** Belongs to one thread. Errors are those of errno; 0 is none. */
class FileWriter {
 public:
  /** Of an object with fewer bytes the page cache is faster than the disk. */
  static constexpr std::size_t leastDirectBytes = 128 << 10;

  /** Makes the file, or empties it; for an object of `bytes`. */
  int create(int folder, const char* name, std::size_t bytes);
  /** What is written is what is summed, whatever else becomes of the ranges' memory meanwhile. */
  int write(const std::vector<iovec>& parts, RunningSum& sum);
  /** What stands behind the object. Once, last. */
  int finish(std::string_view tail);
  int sync();
  /** Needs no `finish`. */
  void close();
  FileWriter() = default;
  ~FileWriter() { close(); }
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

 private:
  int flush(std::size_t bytes);
  int leavePastCache();
  struct Free {
    void operator()(char* buffer) const;
  };
  std::unique_ptr<char, Free> buffer_;
  std::size_t held_ = 0;
  int fd_ = -1;
  bool isDirect_ = false;
};

}  // namespace svc
