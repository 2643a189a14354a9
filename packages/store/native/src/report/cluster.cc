// Segments, disks, clients and tenants as text.
#include <algorithm>

#include "base/json_text.h"
#include "report/report.h"

namespace svc {

using text::claim;
using text::member;
using text::quote;

// 64-bit numbers are text, since JavaScript makes bigints of them.
std::string segmentsJson(const Store& store) {
  std::string out = "[";
  for (u32 number = 1; number < store.cluster.segmentEnd(); ++number) {
    const Segment* segment = store.cluster.segment(number);
    if (segment == nullptr || segment->gone || segment->onDisk()) continue;
    out.append(out.size() > 1 ? ",{" : "{").append("\"number\":").append(std::to_string(number));
    member(out, "id", textOf(segment->id));
    member(out, "clientID", textOf(store.cluster.client(segment->client).id));
    member(out, "name", segment->name);
    member(out, "endpoint", segment->endpoint);
    member(out, "protocol", segment->protocol);
    member(out, "hostID", segment->hostID);
    member(out, "base", std::to_string(segment->base));
    member(out, "sizeBytes", std::to_string(segment->size));
    member(out, "usedBytes", std::to_string(segment->allocator.used()));
    member(out, "state", static_cast<u64>(segment->state));
    claim(out, "nof", segment->nof());
    claim(out, "awaiting", segment->awaiting);
    claim(out, "silent", segment->silent);
    claim(out, "unreachable", segment->unreachable);
    out.push_back('}');
  }
  return out.append("]");
}

std::string disksJson(const Store& store) {
  std::string out = "[";
  for (u32 number = 1; number < store.cluster.segmentEnd(); ++number) {
    const Segment* segment = store.cluster.segment(number);
    if (segment == nullptr || segment->gone || !segment->onDisk() || segment->shared()) continue;
    const Disk& disk = *segment->disk;
    out.append(out.size() > 1 ? ",{" : "{").append("\"label\":").append(std::to_string(disk.label));
    member(out, "disk_id", textOf(segment->id));
    member(out, "client_id", textOf(store.cluster.client(segment->client).id));
    member(out, "transport_endpoint", segment->endpoint);
    member(out, "capacity_bytes", disk.capacity);
    member(out, "used_bytes", disk.used);
    member(out, "objects", disk.files);
    member(out, "waiting_objects", disk.offload.size());
    member(out, "dropped_objects", disk.dropped.size());
    claim(out, "cold", disk.cold());
    member(out, "name", segment->name);
    claim(out, "takes_objects", disk.enabled);
    claim(out, "readable", segment->readable());
    out.push_back('}');
  }
  return out.append("]");
}

std::string folderJson(const Store& store) {
  const Segment* segment = store.folder.segment();
  if (segment == nullptr || segment->gone) return {};
  const Disk& disk = *segment->disk;
  std::string out = "{\"path\":";
  quote(out, disk.folder->path);
  // The quota is unknown before the file system was asked.
  out.append(",\"quota_bytes\":").append(disk.capacity == ~u64{0} ? "null" : std::to_string(disk.capacity));
  member(out, "used_bytes", disk.used);
  member(out, "objects", disk.files);
  member(out, "dropped_objects", disk.dropped.size());
  claim(out, "evicts", disk.folder->evicts);
  return out.append("}");
}

std::string clientsJson(const Store& store) {
  std::string out = "[";
  for (u32 number = 1; number < store.cluster.clientEnd(); ++number) {
    const Client& client = store.cluster.client(number);
    if (!client.used) continue;
    out.append(out.size() > 1 ? ",{" : "{").append("\"number\":").append(std::to_string(number));
    member(out, "id", textOf(client.id));
    member(out, "segments", client.segments.size());
    member(out, "objects", client.objects);
    member(out, "seenMsAgo", store.nowMs() - std::min(store.nowMs(), client.seenMs));
    claim(out, "known", client.known);
    claim(out, "silent", client.silent);
    out.push_back('}');
  }
  return out.append("]");
}

std::string tenantsJson(const Store& store) {
  std::string out = "[";
  for (u32 number = 0; number < store.tenants.size(); ++number) {
    const Tenant& tenant = store.tenants[number];
    out.append(out.size() > 1 ? ",{" : "{").append("\"number\":").append(std::to_string(number));
    member(out, "name", tenant.name);
    member(out, "quotaBytes", std::to_string(tenant.quota));
    member(out, "effectiveBytes", std::to_string(store.tenants.quotaOf(static_cast<u16>(number))));
    member(out, "chargedBytes", std::to_string(tenant.charged));
    claim(out, "registered", tenant.registered);
    out.push_back('}');
  }
  return out.append("]");
}

}  // namespace svc
