// Processes a file request chunk by chunk, so that no request makes this process hold more than one chunk.
#include "tcp_file_session.h"

#include <algorithm>
#include <new>

namespace svc {

namespace {
/** Aligned chunks let the file transport bypass the page cache. */
constexpr size_t ALIGNMENT = 4096;
}  // namespace

bool FileSession::begin(const wire::Header& header) {
  header_ = header;
  moved_ = have_ = 0;
  left_ = header.size;
  if (header.opensFile()) return header.size <= MAX_NAME_BYTES;
  return segment_ != nullptr && inside(0, segment_->length(), header.address, header.size);
}

void FileSession::makeChunk() {
  if (chunk_) return;
  auto* memory = static_cast<char*>(std::aligned_alloc(ALIGNMENT, CHUNK_BYTES));
  if (memory == nullptr) throw std::bad_alloc();
  chunk_ = std::shared_ptr<char>(memory, std::free);
}

size_t FileSession::take(const char* bytes, size_t size) {
  makeChunk();
  size_t taken = size_t(std::min<uint64_t>({size, left_, capacity() - have_}));
  memcpy(chunk_.get() + have_, bytes, taken);
  have_ += taken;
  left_ -= taken;
  return taken;
}

bool FileSession::work() {
  if (header_.opensFile()) {
    segment_ = service_.open(std::string(chunk_.get(), have_));
    have_ = 0;
    return segment_ != nullptr;
  }
  makeChunk();
  if (reads()) have_ = size_t(std::min<uint64_t>(left_, CHUNK_BYTES));
  FileRequest request{reinterpret_cast<uint64_t>(chunk_.get()), header_.address + moved_, have_, header_.write(), {}};
  if (!service_.run(*segment_, request)) return false;
  moved_ += have_;
  if (reads()) left_ -= have_;
  else have_ = 0;
  return true;
}

std::shared_ptr<char> FileSession::giveChunk(size_t& size) {
  size = std::exchange(have_, 0);
  return std::move(chunk_);
}

}  // namespace svc
