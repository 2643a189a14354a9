// The interface of a transport: routes to the segments of peers, registration of buffers, and its part of the published record.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "descriptor.h"
#include "memory_registry.h"
#include "metrics.h"
#include "slice.h"
#include "svc/transfer_engine.h"

namespace svc {

/** Which thread moves the bytes: the waiting caller's, the engine's, or the caller's for poll_us and then the engine's. */
enum class Drive { Caller, Engine, Lingering };
/** The cost of passing slices to a route, for the calling thread. */
enum class Cost { Posts, Copies, Blocks };

class InstalledTransport;

/** The way to one segment over one transport, built from the segment's record. Thread-safe. */
class Route : public std::enable_shared_from_this<Route> {
 public:
  Route(std::shared_ptr<InstalledTransport> transport, std::string segmentName) : transport(std::move(transport)), segmentName(std::move(segmentName)) {}
  virtual ~Route() = default;

  virtual Path path() const = 0;
  virtual Cost cost() { return Cost::Posts; }
  /** The number of slices that it has taken and not ended. */
  virtual uint64_t inFlight() const { return 0; }
  /** False if the process behind it is gone and the segment's record should be read again. */
  virtual bool alive() { return true; }
  /** True if the peer checks its own table, so that a range need not be in the record. */
  virtual bool servesUnpublished() const { return false; }
  /**
   * Removes the slices that it serves from `slices`; each ends COMPLETED or FAILED, or comes back, by its deadline. The remaining ones are
   * for the next route. Slices come back through RouteOwner, or in the result if the caller drives.
   */
  virtual Unfinished take(std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs) = 0;
  /** Ends the route: slices in flight come back or fail with this reason. */
  virtual void close(const std::string&) {}
  /**
   * Describes the path of a range in this buffer (null: in none). If it does not serve the range it returns an empty text and adds the
   * reason to `passed`.
   */
  virtual std::string explain(const PublishedBuffer* buffer, std::string& passed) = 0;

  /** Returns whether slices are in flight and the peer has been silent for this long, for transports that do not report a lost peer. */
  virtual bool silent(uint64_t, uint64_t) const { return false; }
  /** Records that the peer was probed: it counts as silent no earlier than this. */
  virtual void heard(uint64_t) {}

  bool usable() const;

  const std::shared_ptr<InstalledTransport> transport;
  const std::string segmentName;

  /** Slices that were given up and that no other route takes, until the engine has looked for a restarted peer. */
  std::mutex strandedMutex;
  std::vector<std::pair<Slice, std::string>> stranded;
};
using RouteRef = std::shared_ptr<Route>;

/** Receives slices that routes could not transfer. Called on their threads, without any of their locks held. */
class RouteOwner {
 public:
  virtual ~RouteOwner() = default;
  /** A connection with all these slices broke; the first one is to blame. */
  virtual void broke(SegmentID segment, const RouteRef& route, Unfinished left) = 0;
  /** A device gave up one slice. */
  virtual void gaveUp(SegmentID segment, const RouteRef& route, Slice slice, const std::string& error) = 0;
};

/** The inputs of a route's construction. */
struct RouteRequest {
  SegmentID id = 0;
  std::string segmentName;
  const SegmentDescriptor& record;
  /** The record of the owner's engine, for a file segment that is not mounted here. */
  const SegmentDescriptor* owner = nullptr;
  /** The previous view's route, if it belongs to the same start of the same engine. */
  RouteRef before;
  /** Sends a payload to the peer's endpoint exchange. Returns nothing, with `why`, on failure. */
  std::function<std::optional<Json>(const Json& payload, std::string& why)> exchange;
};

class InstalledTransport : public Transport, public std::enable_shared_from_this<InstalledTransport> {
 public:
  explicit InstalledTransport(std::string name) : name_(std::move(name)) {}
  const char* name() const override { return name_.c_str(); }
  bool installed() const { return installed_.load(std::memory_order_acquire); }

  virtual Path path() const = 0;
  /** Returns null with `why`, or without a reason if the transport does not handle such segments. */
  virtual RouteRef route(const RouteRequest& to, std::string& why) = 0;
  /** Returns false with lastError() if the buffer cannot be registered. */
  virtual bool registerBuffer(Buffer&) { return true; }
  /** When it returns, no byte moves over this transport any more, except for copies that ControlPage::giveBack waits for. */
  virtual void unregisterBuffer(Buffer&) {}
  /** Adds its part to the engine's own record. */
  virtual void describe(SegmentDescriptor&) const {}
  virtual void describe(const Buffer&, PublishedBuffer&) const {}
  /** Answers a peer's payload of the endpoint exchange. */
  virtual std::optional<Json> answerExchange(const Json&) { return std::nullopt; }
  /** True if routes may fall silent, so that their peers must be probed. */
  virtual bool watched() const { return false; }
  /** Runs on each loop's thread, with its index. */
  virtual void tick(size_t) {}

  // The steps of stopping, in this order.
  virtual void stopServing() {}
  /** Prevents new routes and ends the existing ones. */
  virtual void closeRoutes(const std::string&) { installed_.store(false, std::memory_order_release); }
  virtual void end() {}

 protected:
  std::atomic<bool> installed_{true};

 private:
  const std::string name_;
};
using TransportRef = std::shared_ptr<InstalledTransport>;

inline bool Route::usable() const { return transport->installed(); }

/** Completes a slice of this path. The metrics come first, because a waiting caller may read them at once. */
inline void completeSlice(Metrics& metrics, Path path, const Slice& slice) {
  metrics.count(path, 1, slice.length);
  finishSlice(*slice.task, slice.length, nullptr);
}
inline void failSlice(Metrics& metrics, Path path, const Slice& slice, const std::string& error) {
  metrics.of(path).failures.fetch_add(1, std::memory_order_relaxed);
  finishSlice(*slice.task, 0, &error);
}

}  // namespace svc
