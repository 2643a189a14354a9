// The shm transport of one engine: copies to and from processes of this host, through mapped memory or the kernel.
#pragma once
#include <span>

#include "options.h"
#include "same_host.h"
#include "transport.h"

namespace svc {

class HostTransport : public InstalledTransport {
 public:
  /** The page outlives the transport, because buffers keep their slots until they are unregistered. */
  HostTransport(std::shared_ptr<ControlPage> page, const Options& options, Metrics& metrics) : InstalledTransport("shm"), page_(std::move(page)), options_(options), metrics_(metrics) {}

  Path path() const override { return Path::Shm; }
  RouteRef route(const RouteRequest& to, std::string& why) override;
  bool registerBuffer(Buffer& buffer) override;
  void unregisterBuffer(Buffer& buffer) override;
  void describe(SegmentDescriptor& record) const override { record.host = page_->identity(); }
  void describe(const Buffer& buffer, PublishedBuffer& entry) const override;

 private:
  friend class HostRoute;
  const std::shared_ptr<ControlPage> page_;
  const Options& options_;
  Metrics& metrics_;
};

/** The route to one process of this host. */
class HostRoute : public Route {
 public:
  HostRoute(std::shared_ptr<HostTransport> transport, const std::string& segmentName, std::shared_ptr<HostPeer> peer)
      : Route(transport, segmentName), metrics_(transport->metrics_), peer_(std::move(peer)) {}

  Path path() const override { return Path::Shm; }
  Cost cost() override { return peer_->alive() ? Cost::Copies : Cost::Blocks; }
  bool alive() override { return peer_->alive(); }
  Unfinished take(std::vector<Slice>& slices, Drive drive, uint64_t deadlineNs) override;
  std::string explain(const PublishedBuffer* buffer, std::string& passed) override;

 private:
  /** Copies slices of one direction; those that failed are added to `rest`. */
  void copyByKernel(std::span<const Slice> run, std::vector<Slice>& rest);
  Metrics& metrics_;
  const std::shared_ptr<HostPeer> peer_;
};

}  // namespace svc
