// A peer's segment as its record shows it, and the routes that serve it.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>

#include "transport.h"

namespace svc {

/** A segment as it was when its record was read last; replaced as a whole, never changed. */
struct SegmentView {
  /** What one transport has for the segment: a route, or the reason why there is none. */
  struct Way {
    Path path;
    RouteRef route;
    std::string why;
  };
  std::shared_ptr<const SegmentDescriptor> record;
  /** Of a file segment that is not mounted here: its owner's engine, which serves it. */
  std::shared_ptr<const SegmentDescriptor> owner;
  /** In the order in which they are tried. */
  std::vector<Way> ways;

  /** The usable route of this path, or null. */
  RouteRef route(Path path) const;
  bool reachable() const;
  /** Why no route serves, in one line; of one path, or of all. */
  std::string whyNot(Path path) const;
  std::string whyNot() const;
  /** The record has no buffer for the range. */
  bool lacks(const Slice& slice) const { return !record->isFile() && record->holding(slice.remote, slice.length) == nullptr; }
  template <typename Use>
  void eachRoute(Use&& use) const {
    for (const auto& way : ways)
      if (way.route && way.route->usable()) use(*way.route);
  }
};
using ViewRef = std::shared_ptr<const SegmentView>;
/** Both views are of one start of the same engine, and of the same files. */
bool sameEngine(const SegmentView& one, const SegmentView& other);

/** One at a time, each waiting for a bounded time. Not std::timed_mutex, whose timed lock the thread sanitizer does not know. */
class Turn {
 public:
  /** False when the deadline passed; one of 0 is none. */
  bool take(uint64_t deadlineNs);
  void give();

 private:
  std::mutex mutex_;
  std::condition_variable given_;
  bool taken_ = false;
};

struct Segment : std::enable_shared_from_this<Segment> {
  SegmentID id = 0;
  std::string name;
  Turn refreshing;
  std::mutex mutex;
  ViewRef view;
  uint64_t fetchedAtMs = 0;
  uint32_t references = 1;
  std::atomic<bool> rereading{false};
  ViewRef current() {
    std::lock_guard lock(mutex);
    return view;
  }
};
using SegmentRef = std::shared_ptr<Segment>;

/** Requests that wait for a thread or a record before they go on. */
struct WaitingSlices {
  std::mutex mutex;
  std::vector<Slice> slices;
  std::vector<SegmentRef> segments;  // kept while somebody may name them
  Path path = Path::Tcp;
  std::string trouble;
  std::vector<Slice> take() {
    std::lock_guard lock(mutex);
    return std::move(slices);
  }
};

}  // namespace svc
