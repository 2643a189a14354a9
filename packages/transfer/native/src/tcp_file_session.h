// What one connection of the data port does with a file segment: chunks between socket and disk, the disk's part in the work pool.
#pragma once
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "file_transport.h"
#include "wire.h"

namespace svc {

/** What the engine lends to its data port. The first two block, and are called in the work pool only. */
struct FileService {
  /** Null: no such segment, or none that this engine can open. */
  std::function<std::shared_ptr<FileSegment>(const std::string& name)> open;
  std::function<bool(const FileSegment& segment, FileRequest& request)> run;
  /** False when the engine is stopping. */
  std::function<bool(uint64_t key, std::function<void()> work)> post;
  /** The same for files that may be long in coming: they hold up nothing but each other. */
  std::function<bool(uint64_t key, std::function<void()> work)> postFilled;
};

/**
 *   idle ──begin──▶ taking bytes (open, write) ──full or all──▶ job ──▶ taking … ──▶ idle
 *              └──▶ job (read) ──▶ giving a chunk ──▶ job … ──▶ idle
 * Used by the loop's thread, and by the pool's during work() alone.
 */
class FileSession {
 public:
  static constexpr size_t CHUNK_BYTES = 1 << 20;
  static constexpr size_t MAX_NAME_BYTES = 1024;

  explicit FileSession(const FileService& service) : service_(service) {}

  /** False: to be refused. */
  bool begin(const wire::Header& header);
  bool taking() const { return header_.write() && left_ > 0; }
  /** How many of the bytes were taken. */
  size_t take(const char* bytes, size_t size);
  /** The chunk is to be moved now. */
  bool ready() const { return left_ > 0 ? !header_.write() || have_ == room() : have_ > 0; }
  /** In the pool: moves the chunk; false when it could not. */
  bool work();
  /** After work() of a read: the bytes to send, which the caller owns. */
  std::shared_ptr<char> giveChunk(size_t& size);
  /** All of the request is through. */
  bool over() const { return left_ == 0 && have_ == 0; }
  bool started() const { return moved_ > 0; }
  bool reads() const { return !header_.write(); }
  bool fills() const { return segment_ != nullptr && segment_->isFilled(); }

 private:
  size_t room() const { return header_.opensFile() ? MAX_NAME_BYTES : CHUNK_BYTES; }
  void makeChunk();

  const FileService service_;
  std::shared_ptr<FileSegment> segment_;
  wire::Header header_;
  uint64_t left_ = 0;   // bytes of the request that are neither in the chunk nor through
  uint64_t moved_ = 0;  // bytes between disk and chunk so far
  std::shared_ptr<char> chunk_;
  size_t have_ = 0;
};

}  // namespace svc
