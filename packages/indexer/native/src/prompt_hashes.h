// The standard hashes of a prompt's complete blocks, in the order of the prompt.
#pragma once
#include <algorithm>

#include "query.h"

namespace svc {

// Computes the hashes of a prompt's blocks a few at a time, so that a miss at the first block costs one.
class PromptHashes {
 public:
  PromptHashes(const Request& request, u32 ahead, u64 localSeed, u64 seed)
      : request_(request), window_(request.space.blockSize + ahead), localSeed_(localSeed), seed_(seed) {
    if (request.hashes != nullptr) total = request.hashCount;
    else if (request.tokenCount >= window_) total = (request.tokenCount - (window_ - request.space.blockSize)) / request.space.blockSize;
  }
  u64 total = 0;

  const u64* take(u64 from, u32& count) {
    if (request_.hashes != nullptr) {
      count = static_cast<u32>(std::min<u64>(total - from, 1u << 20));
      return request_.hashes + from;
    }
    count = static_cast<u32>(std::min<u64>(total - from, from == 0 ? 1 : chunk));
    // The block hashes are computed first, since they are independent of each other.
    const u32* tokens = request_.tokens + from * request_.space.blockSize;
    for (u32 i = 0; i < count; ++i) out_[i] = localHash(tokens + static_cast<u64>(i) * request_.space.blockSize, window_, localSeed_);
    for (u32 i = 0; i < count; ++i) out_[i] = previous_ = from + i == 0 ? out_[i] : roll(previous_, out_[i], seed_);
    return out_;
  }

 private:
  static constexpr u32 chunk = 16;
  const Request& request_;
  u32 window_;
  u64 localSeed_, seed_, previous_ = 0;
  u64 out_[chunk];
};

}  // namespace svc
