// What every transport implements: routes to the segments of peers, and its part in registration and in the published record.
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

/** Whose thread moves the bytes: the caller's, which waits for them; the engine's; or the caller's for a moment (poll_us), and then the engine's. */
enum class Drive { Caller, Engine, Lingering };
/** What handing slices in costs the thread that does it. */
enum class Cost { Posts, Copies, Blocks };

class InstalledTransport;

/** The way to one segment over one transport, made from the segment's record. Several threads use it at once. */
class Route : public std::enable_shared_from_this<Route> {
 public:
  Route(std::shared_ptr<InstalledTransport> transport, std::string segmentName) : transport(std::move(transport)), segmentName(std::move(segmentName)) {}
  virtual ~Route() = default;

  virtual Path path() const = 0;
  virtual Cost cost() { return Cost::Posts; }
  /** Slices that it took and that have not ended. */
  virtual uint64_t inFlight() const { return 0; }
  /** False: whoever is behind it is gone, and the segment's record should be read again. */
  virtual bool alive() { return true; }
  /** The peer looks into a table of its own: a range need not be in the record. */
  virtual bool servesUnpublished() const { return false; }
  /**
   * Takes what it serves out of `slices`: each of those ends COMPLETED or FAILED, or comes back, by the deadline it carries. What stays is
   * for the next route. What comes back does so through RouteOwner, or in the answer when the caller drives.
   */
  virtual Unfinished take(std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs) = 0;
  /** Of no more use: what is in flight comes back or fails with this reason. */
  virtual void close(const std::string&) {}
  /** How a range in this buffer (null: in none) would go; or empty, and in `passed` why not. */
  virtual std::string explain(const PublishedBuffer* buffer, std::string& passed) = 0;

  /** Slices are in flight and nothing was heard of the peer for so long, where nothing else would say that it is gone. */
  virtual bool silent(uint64_t, uint64_t) const { return false; }
  /** The peer was asked after: it is silent no earlier than this. */
  virtual void heard(uint64_t) {}

  bool usable() const;

  const std::shared_ptr<InstalledTransport> transport;
  const std::string segmentName;

  /** Slices given up that no other route takes, until the engine has looked for the peer's next start. */
  std::mutex strandedMutex;
  std::vector<std::pair<Slice, std::string>> stranded;
};
using RouteRef = std::shared_ptr<Route>;

/** Where routes give back what they could not move. Called on their threads, with none of their locks held. */
class RouteOwner {
 public:
  virtual ~RouteOwner() = default;
  /** A connection broke with all these on it, the one to blame first. */
  virtual void broke(SegmentID segment, const RouteRef& route, Unfinished left) = 0;
  /** One slice was given up by its device. */
  virtual void gaveUp(SegmentID segment, const RouteRef& route, Slice slice, const std::string& error) = 0;
};

/** What a route is made from. */
struct RouteRequest {
  SegmentID id = 0;
  std::string segmentName;
  const SegmentDescriptor& record;
  /** Of a file segment that is not mounted here: the record of its owner's engine. */
  const SegmentDescriptor* owner = nullptr;
  /** The route of the last view, when that was of the same start of the same engine. */
  RouteRef before;
  /** Hands a payload to the peer's endpoint exchange. Null with `why`. */
  std::function<std::optional<Json>(const Json& payload, std::string& why)> exchange;
};

/** One installed transport. */
class InstalledTransport : public Transport, public std::enable_shared_from_this<InstalledTransport> {
 public:
  explicit InstalledTransport(std::string name) : name_(std::move(name)) {}
  const char* name() const override { return name_.c_str(); }
  bool installed() const { return installed_.load(std::memory_order_acquire); }

  virtual Path path() const = 0;
  /** Null with `why`; without a reason when the transport has nothing to do with such segments. */
  virtual RouteRef route(const RouteRequest& to, std::string& why) = 0;
  /** False with lastError(): this buffer cannot be had. */
  virtual bool registerBuffer(Buffer&) { return true; }
  /** No byte moves by this transport any more once it returns, but for copies that ControlPage::giveBack waits for. */
  virtual void unregisterBuffer(Buffer&) {}
  /** Its part of the engine's own record. */
  virtual void describe(SegmentDescriptor&) const {}
  virtual void describe(const Buffer&, PublishedBuffer&) const {}
  /** What a peer gets back for its payload of the endpoint exchange. */
  virtual std::optional<Json> answerExchange(const Json&) { return std::nullopt; }
  /** Routes may fall silent: somebody has to ask after their peers. */
  virtual bool watched() const { return false; }
  /** On each loop's thread, by its index. */
  virtual void tick(size_t) {}

  // The end, in this order.
  virtual void stopServing() {}
  /** No route is made from here on, and those there are come to nothing. */
  virtual void closeRoutes(const std::string&) { installed_.store(false, std::memory_order_release); }
  virtual void end() {}

 protected:
  std::atomic<bool> installed_{true};

 private:
  const std::string name_;
};
using TransportRef = std::shared_ptr<InstalledTransport>;

inline bool Route::usable() const { return transport->installed(); }

/** A slice of this path is through. Counted first: who waited for it may ask. */
inline void completeSlice(Metrics& metrics, Path path, const Slice& slice) {
  metrics.count(path, 1, slice.length);
  finishSlice(*slice.task, slice.length, nullptr);
}
inline void failSlice(Metrics& metrics, Path path, const Slice& slice, const std::string& error) {
  metrics.of(path).failures.fetch_add(1, std::memory_order_relaxed);
  finishSlice(*slice.task, 0, &error);
}

}  // namespace svc
