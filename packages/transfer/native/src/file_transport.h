// File segments: io_uring with O_DIRECT for the aligned middle, a buffered descriptor for ragged ends.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base.h"
#include "descriptor.h"

namespace svc {

struct FileRequest {
  uint64_t local = 0, offset = 0, length = 0;
  bool write = false;
  /** Set by run(): empty when all bytes went through. */
  std::string error;
};

/** The files of one segment, laid end to end: offset 0 of a file is the sum of the lengths before it. */
class FileSegment {
 public:
  struct Part {
    std::string path;
    uint64_t start = 0, length = 0;
    Fd buffered, direct;
  };
  /** Null with lastError(): a file that is not mounted on `machine`, or cannot be opened. */
  static std::shared_ptr<FileSegment> open(const SegmentDescriptor& record, const std::string& machine);
  /** Without any file behind it, for checks of what keeps requests inside a segment. */
  static std::shared_ptr<FileSegment> ofLength(uint64_t length);
  const std::vector<Part>& parts() const { return parts_; }
  uint64_t length() const { return parts_.empty() ? 0 : parts_.back().start + parts_.back().length; }

 private:
  std::vector<Part> parts_;
};

/** What is said of a range beyond the end of a segment. */
std::string endText(uint64_t offset, uint64_t length, uint64_t segmentLength);

class Ring;

/** Rings for callers to run requests on, each by one thread at a time. */
class FileTransport {
 public:
  explicit FileTransport(bool syncData);
  ~FileTransport();
  /** Whether the kernel gives us io_uring; without it reads and writes are plain calls. */
  bool ring() const { return ringWorks_; }
  void run(const FileSegment& segment, std::vector<FileRequest>& requests);

 private:
  static constexpr size_t IDLE_RINGS = 4;
  bool syncData_;
  bool ringWorks_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> idle_;
};

}  // namespace svc
