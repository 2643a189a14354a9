// A peer's segment as its record describes it, and the routes that serve it.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>

#include "transport.h"

namespace svc {

/** The state of a segment when its record was last read. It is immutable and replaced as a whole. */
struct SegmentView {
  /** One transport's result for the segment: a route, or the reason why there is none. */
  struct Way {
    Path path;
    RouteRef route;
    std::string why;
  };
  std::shared_ptr<const SegmentDescriptor> record;
  /** The record of the owner's engine, which serves a file segment that is not mounted here. */
  std::shared_ptr<const SegmentDescriptor> owner;
  /** The ways, in the order in which they are tried. */
  std::vector<Way> ways;

  /** Returns the usable route of this path, or null. */
  RouteRef route(Path path) const;
  bool reachable() const;
  /** The reason why no route serves, in one line, for one path or for all. */
  std::string whyNot(Path path) const;
  std::string whyNot() const;
  /** Returns true if the record lists no buffer for the range. */
  bool lacks(const Slice& slice) const { return !record->isFile() && record->holding(slice.remote, slice.length) == nullptr; }
  template <typename Use>
  void eachRoute(Use&& use) const {
    for (const auto& way : ways)
      if (way.route && way.route->usable()) use(*way.route);
  }
};
using ViewRef = std::shared_ptr<const SegmentView>;
/** Returns whether both views are of the same start of one engine, and of the same files. */
bool sameEngine(const SegmentView& one, const SegmentView& other);

/** A mutex with a timed wait. std::timed_mutex is not used, because the thread sanitizer does not support its timed lock. */
class TimedMutex {
 public:
  /** Returns false after the deadline; 0 means none. */
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
  TimedMutex refreshing;
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

/** Requests that wait for a thread or a record before they continue. */
struct WaitingSlices {
  std::mutex mutex;
  std::vector<Slice> slices;
  std::vector<SegmentRef> segments;  // kept alive while slices may refer to them
  Path path = Path::Tcp;
  std::string trouble;
  std::vector<Slice> take() {
    std::lock_guard lock(mutex);
    return std::move(slices);
  }
};

}  // namespace svc
