// Records of one kind by 32-bit index: the address range is reserved once, pages appear when first touched, freed records are reused.
#pragma once
#include <sys/mman.h>

#include <new>
#include <type_traits>

#include "base/base.h"

namespace svc {

template <typename T>
class Pool {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) >= sizeof(u32));

 public:
  explicit Pool(u32 capacity) : capacity_(capacity), bytes_(std::size_t{capacity} * sizeof(T)) {
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(at);
    // Lookups touch all of it at random, and large pages save most of their TLB misses.
    madvise(at, bytes_, MADV_HUGEPAGE);
  }
  ~Pool() { munmap(static_cast<void*>(data_), bytes_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Returns an index above 0 with a zeroed record; 0 when all are in use.
  u32 take() {
    u32 index = free_;
    if (index != 0) {
      std::memcpy(&free_, static_cast<void*>(&data_[index]), sizeof free_);
      std::memset(static_cast<void*>(&data_[index]), 0, sizeof(T));
    } else {
      if (end_ >= capacity_) return 0;
      index = end_++;
    }
    ++live_;
    return index;
  }
  void give(u32 index) {
    std::memset(static_cast<void*>(&data_[index]), 0, sizeof(T));
    std::memcpy(static_cast<void*>(&data_[index]), &free_, sizeof free_);
    free_ = index;
    --live_;
  }
  T& operator[](u32 index) { return data_[index]; }
  const T& operator[](u32 index) const { return data_[index]; }
  // One past the highest index ever taken.
  u32 end() const { return end_; }
  u32 live() const { return live_; }
  bool full() const { return free_ == 0 && end_ >= capacity_; }

 private:
  u32 capacity_;
  std::size_t bytes_;
  T* data_;
  u32 end_ = 1, free_ = 0, live_ = 0;
};

}  // namespace svc
