// Writes an object's bytes to a file. Large objects bypass the page cache, since copying them there costs more CPU time than all the rest.
#pragma once
#include <sys/uio.h>

#include <memory>
#include <string_view>
#include <vector>

#include "base/checksum.h"

namespace svc {

/** Belongs to one thread. Errors are errno values; 0 means success. */
class FileWriter {
 public:
  /** For smaller objects the page cache is faster than the disk. */
  static constexpr std::size_t leastDirectBytes = 128 << 10;

  /** Creates or truncates the file, for an object of `bytes`. */
  int create(int folder, const char* name, std::size_t bytes);
  /** Sums exactly the bytes that are written, even if the ranges' memory changes meanwhile. */
  int write(const std::vector<iovec>& parts, RunningSum& sum);
  /** Appends what follows the object's bytes; must be called once, last. */
  int finish(std::string_view tail);
  int sync();
  /** May be called without `finish`. */
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
  std::size_t filled_ = 0;
  int fd_ = -1;
  bool isDirect_ = false;
};

}  // namespace svc
