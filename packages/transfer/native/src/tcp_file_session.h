// Serves a file segment on one connection: chunks move between socket and disk, with the disk access in the work pool.
#pragma once
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "file_transport.h"
#include "wire.h"

namespace svc {

/** The engine's functions for its data port. The first two block and are only called in the work pool. */
struct FileService {
  /** Returns null if there is no such segment, or this engine cannot open it. */
  std::function<std::shared_ptr<FileSegment>(const std::string& name)> open;
  std::function<bool(const FileSegment& segment, FileRequest& request)> run;
  /** Returns false if the engine is stopping. */
  std::function<bool(uint64_t key, std::function<void()> work)> post;
  /** The same for files that may take long to arrive; they delay only each other. */
  std::function<bool(uint64_t key, std::function<void()> work)> postFilled;
};

/**
 *   idle ──begin──▶ taking bytes (open, write) ──full or all──▶ job ──▶ taking … ──▶ idle
 *              └──▶ job (read) ──▶ giving a chunk ──▶ job … ──▶ idle
 * Used by the loop's thread, and by the pool's thread only during work().
 */
class FileSession {
 public:
  static constexpr size_t CHUNK_BYTES = 1 << 20;
  static constexpr size_t MAX_NAME_BYTES = 1024;

  explicit FileSession(const FileService& service) : service_(service) {}

  /** Returns false if the request must be refused. */
  bool begin(const wire::Header& header);
  bool taking() const { return header_.write() && left_ > 0; }
  /** Returns how many of the bytes were taken. */
  size_t take(const char* bytes, size_t size);
  /** True if the chunk must be moved now. */
  bool ready() const { return left_ > 0 ? !header_.write() || have_ == capacity() : have_ > 0; }
  /** Runs in the pool: moves the chunk; returns false on failure. */
  bool work();
  /** Call after work() of a read: returns the bytes to send, which the caller owns. */
  std::shared_ptr<char> giveChunk(size_t& size);
  /** True if the whole request has been processed. */
  bool over() const { return left_ == 0 && have_ == 0; }
  bool started() const { return moved_ > 0; }
  bool reads() const { return !header_.write(); }
  bool fills() const { return segment_ != nullptr && segment_->isFilled(); }

 private:
  size_t capacity() const { return header_.opensFile() ? MAX_NAME_BYTES : CHUNK_BYTES; }
  void makeChunk();

  const FileService service_;
  std::shared_ptr<FileSegment> segment_;
  wire::Header header_;
  uint64_t left_ = 0;   // bytes of the request that are neither in the chunk nor processed
  uint64_t moved_ = 0;  // bytes moved between disk and chunk so far
  std::shared_ptr<char> chunk_;
  size_t have_ = 0;
};

}  // namespace svc
