// The progress of each standby, as JSON for JavaScript and for people.
#include "replication/replication.h"

namespace svc {

std::string Replication::describe(u64 nowMs) const {
  static constexpr const char* names[] = {"greeting", "asking", "syncing", "saving", "live", "gone"};
  std::string out = "{\"lsn\":" + std::to_string(lastLsn()) + ",\"committed\":" + std::to_string(committed(log_.durableLsn(), nowMs)) +
                    ",\"leased\":" + (leased(nowMs) ? "true" : "false") + ",\"contactAgeMs\":" + std::to_string(contactAgeMs(nowMs)) + ",\"resumes\":" + std::to_string(resumes) +
                    ",\"wholes\":" + std::to_string(wholes) + ",\"peers\":[";
  bool first = true;
  for (const auto& peer : peers_) {
    if (!peer) continue;
    out += std::string(first ? "" : ",") + "{\"id\":" + std::to_string(peer->id) + ",\"state\":\"" + names[static_cast<u8>(peer->state)] +
           "\",\"acked\":" + std::to_string(peer->acked) + ",\"required\":" + (peer->required ? "true" : "false") +
           ",\"unsentBytes\":" + std::to_string(peer->stream.unsent()) + "}";
    first = false;
  }
  return out + "]}";
}

}  // namespace svc
