// An array that reserves its addresses once and whose pages are allocated at their first use, so that it grows without copying.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "hashing.h"

namespace svc {

inline constexpr std::size_t hugeBytes = std::size_t{2} << 20;

// Look-ups are spread over the whole array: with large pages most of them avoid a TLB miss. The system may refuse, which does no harm.
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
    // A small index must not get more memory than it reports.
    if (isLarge()) wantHuge(at, bytes_);
  }
  ~Reserved() { munmap(data_, bytes_); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  // Returns the pages between the first `count` elements and `end` to the system, some at a time; they are zero at their next use.
  void giveBackBehind(std::size_t count, std::size_t end) {
    const std::size_t from = (count * sizeof(T) + 2 * unit() - 1) / unit() * unit(), to = std::min(used_, end * sizeof(T) / pageBytes * pageBytes);
    if (from < to) drop(from, to);
    used_ = std::min(used_, from);
  }
  // Returns only the pages of these elements.
  void giveBack(std::size_t first, std::size_t end) {
    const std::size_t from = (first * sizeof(T) + pageBytes - 1) / pageBytes * pageBytes, to = end * sizeof(T) / pageBytes * pageBytes;
    if (from < to) drop(from, to);
  }
  // Marks the first `count` elements as used.
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
