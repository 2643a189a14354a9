// Checksums with the baseline instructions of this architecture, or with AVX2 where the processor has it.
#include "base/checksum.h"

#include "base/checksum_body.h"

namespace svc {

#if defined(__x86_64__)
namespace {
bool wide() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
}  // namespace

u64 checksumOf(const u64* ranges, std::size_t count) { return wide() ? avx2::checksumOf(ranges, count) : sumOfRanges(ranges, count); }
RunningSum::RunningSum() { wide() ? avx2::beginSum(state_) : beginSum(state_); }
void RunningSum::add(const void* data, std::size_t size) { wide() ? avx2::addToSum(state_, data, size) : addToSum(state_, data, size); }
u64 RunningSum::value() const { return wide() ? avx2::endSum(state_) : endSum(state_); }
#else
u64 checksumOf(const u64* ranges, std::size_t count) { return sumOfRanges(ranges, count); }
RunningSum::RunningSum() { beginSum(state_); }
void RunningSum::add(const void* data, std::size_t size) { addToSum(state_, data, size); }
u64 RunningSum::value() const { return endSum(state_); }
#endif

}  // namespace svc
