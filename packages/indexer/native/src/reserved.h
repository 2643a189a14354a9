// An array whose addresses are reserved once and whose pages come into being when first touched: it grows without copying.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "hashing.h"

namespace svc {

inline constexpr std::size_t hugeBytes = std::size_t{2} << 20;

// Look-ups go all over an array: with large pages most of them miss no translation as well. Refused is no harm.
inline void wantHuge(void* at, std::size_t bytes) {
  madvise(at, bytes, MADV_HUGEPAGE);
}

template <typename T>
class Reserved {
 public:
  explicit Reserved(std::size_t capacity) : bytes_(capacity * sizeof(T)) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(at);
    // A small index does not get more memory than it says.
    if (isLarge()) wantHuge(at, bytes_);
  }
  ~Reserved() { munmap(data_, bytes_); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  // Of what lies behind the first `count`, up to `end`, which nobody uses any more, the pages go back to the system, some at a time; they are zero when
  // they come again.
  void giveBackBehind(std::size_t count, std::size_t end) {
    const std::size_t from = (count * sizeof(T) + 2 * unit() - 1) / unit() * unit(), to = std::min(used_, end * sizeof(T) / pageBytes * pageBytes);
    if (from < to) drop(from, to);
    used_ = std::min(used_, from);
  }
  // As the above, of these alone.
  void giveBack(std::size_t first, std::size_t end) {
    const std::size_t from = (first * sizeof(T) + pageBytes - 1) / pageBytes * pageBytes, to = end * sizeof(T) / pageBytes * pageBytes;
    if (from < to) drop(from, to);
  }
  // The first `count` are in use.
  void use(std::size_t count) { used_ = std::max(used_, (count * sizeof(T) + unit() - 1) / unit() * unit()); }

  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return bytes_ / sizeof(T); }
  T* data() { return data_; }
  const T* data() const { return data_; }

 private:
  static constexpr std::size_t pageBytes = 4096;
  bool isLarge() const { return bytes_ >= 32 * hugeBytes; }
  std::size_t unit() const { return isLarge() ? hugeBytes : hugeBytes / 32; }
  void drop(std::size_t from, std::size_t to) { madvise(reinterpret_cast<u8*>(data_) + from, std::min(to, bytes_) - from, MADV_DONTNEED); }
  std::size_t bytes_, used_ = 0;  // in bytes
  T* data_;
};

}  // namespace svc
