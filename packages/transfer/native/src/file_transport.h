// File segments: io_uring with O_DIRECT for the aligned middle, and a buffered descriptor for unaligned ends.
#pragma once
#include <span>

#include "transport.h"

namespace svc {

struct FileRequest {
  uint64_t local = 0, offset = 0, length = 0;
  bool write = false;
  /** Set by run(); empty if all bytes were transferred. */
  std::string error;
};

/** The files of one segment, concatenated: a file begins at the sum of the lengths before it. */
class FileSegment {
 public:
  struct Part {
    std::string path;
    uint64_t start = 0, length = 0;
    Fd buffered, direct;
  };
  /** Returns null with lastError() if a file is not mounted on `machine` or cannot be opened. */
  static std::shared_ptr<FileSegment> open(const SegmentDescriptor& record, const std::string& machine);
  /** A segment without files, for checks of the bounds of requests. */
  static std::shared_ptr<FileSegment> ofLength(uint64_t length);
  /** Returns null with lastError() if the folder is on another host or, unless `isOwner`, on a file system that may block. */
  static std::shared_ptr<FileSegment> openFolder(const PublishedFolder& folder, bool isOwner);
  /** Opens one file of a folder for reading; returns null with the reason on failure. */
  std::unique_ptr<Part> fileAt(uint64_t offset, bool direct, std::string& why) const;
  bool isFolder() const { return bool(folder_); }
  /** True if files are created on demand, which may be slow. */
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

/** In a folder's segment file N begins at N << FOLDER_FILE_SHIFT; its name is N in eight hexadecimal digits. */
inline constexpr unsigned FOLDER_FILE_SHIFT = 35;

class Ring;

/** Runs file requests on rings; each ring is used by one thread at a time. */
class FileTransport : public InstalledTransport {
 public:
  /** `engineName` is the machine whose mount paths are used. */
  FileTransport(bool syncData, std::string engineName, Metrics& metrics);
  ~FileTransport() override;
  Path path() const override { return Path::File; }
  RouteRef route(const RouteRequest& to, std::string& why) override;
  /** True if the kernel provides io_uring; otherwise reads and writes are ordinary calls. */
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

/** The route to a segment whose files are mounted here. */
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
