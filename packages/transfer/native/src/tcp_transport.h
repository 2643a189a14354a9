// The tcp transport of one engine: the data port on every event loop, and the routes to peers' data ports.
#pragma once
#include <set>

#include "tcp_client.h"
#include "tcp_server.h"

namespace svc {

class TcpTransport : public InstalledTransport {
 public:
  TcpTransport(std::vector<EventLoop*> loops, const Options& options, Metrics& metrics, RouteOwner& owner, std::string host)
      : InstalledTransport("tcp"), loops_(std::move(loops)), servers_(loops_.size()), options_(options), metrics_(metrics), owner_(owner), host_(std::move(host)) {}
  /** Serves the registry's buffers and the files on a free port; returns false with lastError(). */
  bool listen(const MemoryRegistry& registry, const FileService& files);

  Path path() const override { return Path::Tcp; }
  RouteRef route(const RouteRequest& to, std::string& why) override;
  void describe(SegmentDescriptor& record) const override;
  void tick(size_t loop) override;
  void stopServing() override;
  void closeRoutes(const std::string& why) override;

 private:
  friend class TcpPeer;
  void drop(const std::shared_ptr<TcpPeer>& peer, const std::string& why);

  const std::vector<EventLoop*> loops_;
  /** Each server is only accessed on its own loop. */
  std::vector<std::shared_ptr<TcpServer>> servers_;
  const Options& options_;
  Metrics& metrics_;
  RouteOwner& owner_;
  const std::string host_;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::set<std::shared_ptr<TcpPeer>> peers_;
};

}  // namespace svc
