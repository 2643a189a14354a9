// Objects, the locations of their replicas, and ids as text.
#include "report/report.h"

#include <algorithm>

#include "base/json_text.h"

namespace svc {

using text::claim;
using text::member;
using text::quote;

namespace {

void buffer(std::string& out, const Store& store, const Replica& replica, u64 size) {
  const Segment& segment = *store.cluster.segment(replica.segment);
  out.append("{\"size_\":").append(std::to_string(size));
  member(out, "buffer_address_", segment.base + segment.allocator.offsetOf(replica.node));
  member(out, "protocol_", segment.protocol);
  member(out, "transport_endpoint_", segment.endpoint);
  out.push_back('}');
}

}  // namespace

std::string textOf(const Uuid& id) {
  char text[40];
  std::snprintf(text, sizeof text, "%08x-%04x-%04x-%04x-%012llx", static_cast<u32>(id.first >> 32), static_cast<u32>(id.first >> 16 & 0xffff),
                static_cast<u32>(id.first & 0xffff), static_cast<u32>(id.second >> 48), static_cast<unsigned long long>(id.second & 0xffff'ffff'ffff));
  return text;
}

bool uuidOf(std::string_view text, Uuid& id) {
  u64 halves[2] = {};
  u32 digits = 0;
  for (const char each : text) {
    if (each == '-') continue;
    const int value = each >= '0' && each <= '9' ? each - '0' : each >= 'a' && each <= 'f' ? each - 'a' + 10 : each >= 'A' && each <= 'F' ? each - 'A' + 10 : -1;
    if (value < 0 || digits == 32) return false;
    halves[digits / 16] = halves[digits / 16] << 4 | static_cast<u64>(value);
    ++digits;
  }
  id = {halves[0], halves[1]};
  return digits == 32;
}

std::string replicasJson(const Store& store, u32 index) {
  std::string out = "[";
  store.table.eachReplica(index, [&](const Replica& replica) {
    if (!store.where.readable(replica) || !store.where.inMemory(replica)) return;
    if (out.size() > 1) out.push_back(',');
    buffer(out, store, replica, store.table[index].size);
  });
  return out.append("]");
}

std::string targetJson(const Store& store, u32 index) { return descriptorsJson(store, index, ReplicaStatus::processing); }

std::string descriptorsJson(const Store& store, u32 index, ReplicaStatus status) {
  std::string out = "[";
  store.table.eachReplica(index, [&](const Replica& replica) {
    if (status == ReplicaStatus::complete ? !store.where.readable(replica) : replica.status != status) return;
    const Segment& segment = *store.cluster.segment(replica.segment);
    out.append(out.size() > 1 ? ",{" : "{").append("\"status\":").append(std::to_string(static_cast<u32>(replica.status)));
    member(out, "id", std::to_string(store.where.replicaID(replica)));
    member(out, "sizeBytes", std::to_string(store.table[index].size));
    if (segment.shared()) {
      member(out, "path", store.folder.pathOf(segment, store.nodes[replica.node].offset));
      out.push_back('}');
      return;
    }
    if (segment.onDisk()) {
      member(out, "clientID", textOf(store.cluster.client(segment.client).id));
      member(out, "endpoint", segment.endpoint);
      out.push_back('}');
      return;
    }
    claim(out, "nof", segment.nof());
    member(out, "address", std::to_string(segment.base + segment.allocator.offsetOf(replica.node)));
    member(out, "protocol", segment.protocol);
    member(out, "endpoint", segment.endpoint);
    out.push_back('}');
  });
  return out.append("]");
}

std::string routeJson(Store& store, u16 tenant, std::string_view key) {
  u32 index = 0;
  if (store.objects.read(tenant, key, false, index) == code::notFound && index == 0) return {};
  const Object& object = store.table[index];
  const Extra* extra = object.extra == 0 ? nullptr : &store.table.extras[object.extra];
  std::string out = "{\"sizeBytes\":\"" + std::to_string(object.size) + "\",\"checksum\":";
  out.append(extra != nullptr && extra->hasChecksum ? "\"" + std::to_string(extra->checksum) + "\"" : "null");
  claim(out, "isMoving", extra != nullptr && extra->task != TaskKind::none);
  out.append(",\"replicas\":[");
  const std::size_t begun = out.size();
  store.table.eachReplica(index, [&](const Replica& replica) {
    const Segment& segment = *store.cluster.segment(replica.segment);
    out.append(out.size() > begun ? ",{" : "{").append("\"status\":").append(std::to_string(static_cast<u32>(replica.status)));
    member(out, "segment", segment.name);
    member(out, "clientID", textOf(store.cluster.client(segment.client).id));
    member(out, "address", std::to_string(segment.base + segment.allocator.offsetOf(replica.node)));
    claim(out, "isReadable", store.where.readable(replica));
    out.push_back('}');
  });
  // An object that waits for a cold device is shown as an incomplete replica there.
  if (const Segment* cold = store.disks.coldFor(index); cold != nullptr) {
    out.append(out.size() > begun ? ",{" : "{").append("\"status\":").append(std::to_string(static_cast<u32>(ReplicaStatus::processing)));
    member(out, "segment", cold->name);
    member(out, "clientID", textOf(store.cluster.client(cold->client).id));
    member(out, "address", std::string_view("0"));
    claim(out, "isReadable", false);
    out.push_back('}');
  }
  return out.append("]}");
}

std::string entryJson(Store& store, u16 tenant, std::string_view key) {
  u32 index = 0;
  const i32 outcome = store.objects.read(tenant, key, false, index);
  if (outcome != code::ok) return outcome == code::notReady ? R"({"ok":false,"error":"REPLICA_IS_NOT_READY"})" : R"({"ok":false,"error":"OBJECT_NOT_FOUND"})";
  std::string out = R"({"ok":true,"values":[)";
  std::string values, nofs, disks, files;
  store.table.eachReplica(index, [&](const Replica& replica) {
    if (!store.where.readable(replica)) return;
    const Segment& segment = *store.cluster.segment(replica.segment);
    if (segment.shared()) {
      files.append("{\"file_path\":");
      quote(files, store.folder.pathOf(segment, store.nodes[replica.node].offset));
      member(files, "object_size", store.table[index].size);
      files.push_back('}');
      return;
    }
    if (segment.onDisk()) {
      disks.append(disks.empty() ? "{" : ",{").append("\"client_id\":");
      quote(disks, textOf(store.cluster.client(segment.client).id));
      member(disks, "object_size", store.table[index].size);
      member(disks, "transport_endpoint", segment.endpoint);
      disks.push_back('}');
      return;
    }
    std::string& list = segment.nof() ? nofs : values;
    list.append(list.empty() ? "{" : ",{").append("\"transport_endpoint_\":");
    quote(list, segment.endpoint);
    list.append(",\"buffer_descriptor\":");
    buffer(list, store, replica, store.table[index].size);
    list.push_back('}');
  });
  out.append(values).push_back(']');
  if (!files.empty()) out.append(",\"disk_values\":[").append(files).push_back(']');
  if (!disks.empty()) out.append(",\"local_disk_values\":[").append(disks).push_back(']');
  if (!nofs.empty()) out.append(",\"nof_values\":[").append(nofs).push_back(']');
  return out.append("}");
}

std::string objectJson(const Store& store, u32 index) {
  const Object& object = store.table[index];
  const Extra* extra = object.extra == 0 ? nullptr : &store.table.extras[object.extra];
  std::string out = "{\"key\":";
  quote(out, store.table.keyOf(index));
  member(out, "size_bytes", object.size);
  u32 replicas = 0, nofs = 0, disks = 0;
  store.table.eachReplica(index, [&](const Replica& replica) { (store.where.onDisk(replica) ? disks : store.where.onNof(replica) ? nofs : replicas) += store.where.readable(replica); });
  member(out, "replicas", replicas);
  member(out, "disk_replicas", disks);
  member(out, "nof_replicas", nofs);
  if (extra != nullptr && extra->hasChecksum) {
    char text[20];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(extra->checksum));
    member(out, "checksum", std::string_view(text));
  } else {
    out.append(",\"checksum\":null");
  }
  member(out, "fingerprint", store.objects.fingerprintOf(object));
  claim(out, "hard_pinned", (object.flags & flag::hardPin) != 0);
  claim(out, "soft_pinned", store.objects.softPinned(object));
  claim(out, "complete", (object.flags & flag::unfinished) == 0);
  return out.append("}");
}

}  // namespace svc
