// A request on its way, or a part of one: what the engine hands to routes, and what it gets back from those that break.
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
  /** The peer's buffer around the range; valid while the view that the slice is dispatched by is held. */
  const PublishedBuffer* buffer = nullptr;
  bool write = false;
  /** Times it was at the head of a connection that broke. */
  uint8_t attempts = 0;
  uint8_t maxAttempts = 2;
  /** At the head of the connection that broke last: the others are not to blame. */
  bool atHead = false;
  /** Already in the metrics of the path it is on: another attempt is not another request. */
  bool counted = false;
};

/** Slices that did not get through, and what is known about the reason. */
struct Unfinished {
  std::vector<Slice> slices;
  std::string trouble;
  bool refused = false;
  bool connectFailed = false;
  bool timedOut = false;
  uint64_t acknowledged = 0;
};

}  // namespace svc
