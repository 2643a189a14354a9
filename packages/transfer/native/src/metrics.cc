// Counters of one engine in Prometheus' text format.
#include "metrics.h"

namespace svc {

namespace {
constexpr const char* names[PATH_COUNT] = {"local", "shm", "process_vm", "rdma", "tcp", "file"};
}

std::string Metrics::text() const {
  std::string out;
  auto head = [&](const std::string& name, const char* help) { out += "# HELP " + name + " " + help + "\n# TYPE " + name + " counter\n"; };
  auto perPath = [&](const std::string& name, const char* help, std::atomic<uint64_t> PerPath::* member) {
    head(name, help);
    for (size_t i = 0; i < PATH_COUNT; i++) out += name + "{path=\"" + names[i] + "\"} " + std::to_string((paths[i].*member).load()) + "\n";
  };
  auto one = [&](const std::string& name, const char* help, const std::atomic<uint64_t>& value) {
    head(name, help);
    out += name + " " + std::to_string(value.load()) + "\n";
  };
  perPath("svc_transfer_requests_total", "Requests by the path they took; one that fell back counts on both", &PerPath::requests);
  perPath("svc_transfer_bytes_total", "Bytes of these requests", &PerPath::bytes);
  perPath("svc_transfer_failures_total", "Requests that failed", &PerPath::failures);
  perPath("svc_transfer_fallbacks_total", "Requests that left this path for the next one", &PerPath::fallbacks);
  one("svc_transfer_connections_opened_total", "Connections made to peers' data ports", connectionsOpened);
  one("svc_transfer_connections_broken_total", "Connections to peers that broke or were given up", connectionsBroken);
  one("svc_transfer_served_bytes_total", "Bytes that peers read and wrote here over tcp", servedBytes);
  one("svc_transfer_refused_total", "Requests of peers for memory that is not theirs", refusedByServer);
  one("svc_transfer_timeouts_total", "Requests given up for their deadline", timeouts);
  one("svc_transfer_descriptor_fetches_total", "Records of segments fetched", descriptorFetches);
  one("svc_transfer_peer_restarts_total", "Peers found anew under their name", peerRestarts);
  one("svc_transfer_metadata_failures_total", "Calls of the metadata service that failed", metadataFailures);
  one("svc_transfer_notifies_sent_total", "Notifications delivered", notifiesSent);
  one("svc_transfer_notifies_received_total", "Notifications taken in", notifiesReceived);
  one("svc_transfer_notifies_dropped_total", "Notifications refused because the list was full", notifiesDropped);
  return out;
}

}  // namespace svc
