// An array whose addresses are reserved once and whose pages come into being when first touched: it grows without copying.
#pragma once
#include <sys/mman.h>

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
    if (bytes_ >= 32 * hugeBytes) wantHuge(at, bytes_);
  }
  ~Reserved() { munmap(data_, bytes_); }
  Reserved(const Reserved&) = delete;
  Reserved& operator=(const Reserved&) = delete;

  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::size_t size() const { return bytes_ / sizeof(T); }
  T* data() { return data_; }
  const T* data() const { return data_; }

 private:
  std::size_t bytes_;
  T* data_;
};

}  // namespace svc
