// File segments: io_uring with O_DIRECT for the aligned middle, a buffered descriptor for ragged ends.
#pragma once
#include <span>

#include "transport.h"

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
  /** Null with lastError(): not this host's, or (for others than its owner) on a file system that may stop answering. */
  static std::shared_ptr<FileSegment> openFolder(const PublishedFolder& folder, bool isOwner);
  /** One file of a folder, for reading; null with the reason. */
  std::unique_ptr<Part> fileAt(uint64_t offset, bool direct, std::string& why) const;
  bool isFolder() const { return bool(folder_); }
  /** Files come when they are read, from somewhere that may be slow. */
  bool isFilled() const { return filled_; }
  const std::string& shownPath() const { return isFolder() ? folderPath_ : parts_[0].path; }
  const std::vector<Part>& parts() const { return parts_; }
  uint64_t length() const { return folder_ ? FOLDER_BYTES : parts_.empty() ? 0 : parts_.back().start + parts_.back().length; }

 private:
  std::vector<Part> parts_;
  Fd folder_;
  bool filled_ = false;
  std::string folderPath_;
};

/** In a folder's segment, file N begins at N << FOLDER_FILE_SHIFT; its name is N in eight hexadecimal digits. */
inline constexpr unsigned FOLDER_FILE_SHIFT = 35;

class Ring;

/** Rings for callers to run requests on, each by one thread at a time. */
class FileTransport : public InstalledTransport {
 public:
  /** `engineName`: the machine by whose mounts files are opened. */
  FileTransport(bool syncData, std::string engineName, Metrics& metrics);
  ~FileTransport() override;
  Path path() const override { return Path::File; }
  RouteRef route(const RouteRequest& to, std::string& why) override;
  /** Whether the kernel gives us io_uring; without it reads and writes are plain calls. */
  bool ring() const { return ringWorks_; }
  void run(const FileSegment& segment, std::vector<FileRequest>& requests);

 private:
  friend class FileRoute;
  static constexpr size_t IDLE_RINGS = 4;
  bool syncData_;
  const std::string engineName_;
  Metrics& metrics_;
  bool ringWorks_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Ring>> idle_;
};

/** To the files of a segment that are mounted here. */
class FileRoute : public Route {
 public:
  FileRoute(std::shared_ptr<FileTransport> transport, const std::string& segmentName, std::shared_ptr<FileSegment> files);
  Path path() const override { return Path::File; }
  Cost cost() override { return Cost::Blocks; }
  Unfinished take(std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs) override;
  std::string explain(const PublishedBuffer* buffer, std::string& passed) override;

 private:
  FileTransport& transport_;
  const std::shared_ptr<FileSegment> files_;
};

}  // namespace svc
