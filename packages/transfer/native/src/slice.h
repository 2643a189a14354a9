// A request in progress, or a part of one, as the engine passes it to routes and gets it back from broken ones.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "batch.h"

namespace svc {

struct Segment;
struct PublishedBuffer;

struct Slice {
  uint64_t local = 0, remote = 0, length = 0;
  Task* task = nullptr;
  uint64_t deadlineNs = 0;
  Segment* segment = nullptr;  // null: this engine's own
  /** The peer's buffer that contains the range; valid while the view that dispatched the slice is held. */
  const PublishedBuffer* buffer = nullptr;
  bool write = false;
  /** How often it was at the head of a connection that broke. */
  uint8_t attempts = 0;
  uint8_t maxAttempts = 2;
  /** True if it was at the head of the connection that just broke; the others are not to blame. */
  bool atHead = false;
  /** True if the path's metrics include it, since a retry is not another request. */
  bool counted = false;
};

/** Slices that were not transferred, and what is known about the reason. */
struct Unfinished {
  std::vector<Slice> slices;
  std::string trouble;
  bool refused = false;
  bool connectFailed = false;
  bool timedOut = false;
  uint64_t acknowledged = 0;
};

}  // namespace svc
