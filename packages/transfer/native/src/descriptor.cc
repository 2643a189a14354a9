// Reads and writes segment records.
#include "descriptor.h"

#include <algorithm>

#include "base.h"

namespace svc {

const PublishedBuffer* SegmentDescriptor::holding(uint64_t address, uint64_t length) const {
  auto after = std::upper_bound(buffers.begin(), buffers.end(), address, [](uint64_t a, const PublishedBuffer& b) { return a < b.address; });
  if (after == buffers.begin()) return nullptr;
  const PublishedBuffer& candidate = *std::prev(after);
  return inside(candidate.address, candidate.length, address, length) ? &candidate : nullptr;
}

void SegmentDescriptor::sortBuffers() {
  std::sort(buffers.begin(), buffers.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
}

Json SegmentDescriptor::toJson() const {
  Json json = Json::object();
  json.set("server_name", serverName);
  json.set("name", serverName);
  json.set("protocol", protocol);
  if (isFile()) {
    Json list = Json::array();
    for (const auto& file : files) {
      Json paths = Json::object();
      for (const auto& [machine, path] : file.localPaths) paths.set(machine, path);
      list.push(Json::Object{{"length", file.length}, {"file_path", file.path}, {"local_path_map", paths}});
    }
    json.set("buffers", list);
    if (folder) json.set("folder", Json::Object{{"path", folder->path}, {"boot_id", folder->bootID}, {"device", folder->device}, {"inode", folder->inode}});
    return json;
  }
  Json deviceList = Json::array();
  for (const auto& device : devices) deviceList.push(Json::Object{{"name", device.name}, {"lid", device.lid}, {"gid", device.gid}});
  json.set("devices", deviceList);
  json.set("priority_matrix", priorityMatrix);
  json.set("rdma_server_name", "");
  json.set("timestamp", timestamp);
  if (tcpPort != 0) {
    json.set("tcp_data_host", tcpHost);
    json.set("tcp_data_port", uint64_t(tcpPort));
    json.set("tcp_proto_version", tcpVersion);
    if (servesFiles) json.set("tcp_serves_files", true);
  }
  if (!instance.empty()) json.set("instance", instance);
  Json list = Json::array();
  for (const auto& buffer : buffers) {
    Json keys = Json::array();
    for (uint64_t key : buffer.remoteKeys) keys.push(key);
    Json entry(Json::Object{{"name", buffer.location}, {"addr", buffer.address}, {"length", buffer.length}, {"rkey", keys}, {"lkey", Json::array()}});
    if (buffer.slot) {
      Json local(Json::Object{{"slot", *buffer.slot}, {"generation", buffer.generation}});
      if (!buffer.mapPath.empty()) {
        local.set("path", buffer.mapPath);
        local.set("offset", buffer.mapOffset);
        local.set("inode", buffer.mapInode);
      }
      entry.set("local", local);
    }
    list.push(entry);
  }
  json.set("buffers", list);
  if (host)
    json.set("host", Json::Object{{"boot_id", host->bootID}, {"pid_namespace", host->pidNamespace}, {"pid", host->pid}, {"start_time", host->startTime},
                                  {"control_page", host->controlPath}, {"control_inode", host->controlInode}, {"nonce_addr", host->nonceAddress}, {"nonce", host->nonce}});
  return json;
}

namespace {

std::optional<PublishedBuffer> readBuffer(const Json& json) {
  PublishedBuffer buffer;
  auto address = json["addr"].number(), length = json["length"].number();
  if (!address || !length || *address == 0 || *length == 0 || *address + *length < *address) return std::nullopt;
  buffer.address = *address;
  buffer.length = *length;
  buffer.location = json["name"].text("*");
  for (const auto& key : json["rkey"].items()) buffer.remoteKeys.push_back(key.number().value_or(0));
  const Json& local = json["local"];
  buffer.slot = local["slot"].number();
  buffer.generation = local["generation"].number().value_or(0);
  buffer.mapPath = local["path"].text();
  buffer.mapOffset = local["offset"].number().value_or(0);
  buffer.mapInode = local["inode"].number().value_or(0);
  return buffer;
}

HostIdentity readHost(const Json& json) {
  return {json["boot_id"].text(), json["pid_namespace"].number().value_or(0), json["pid"].number().value_or(0), json["start_time"].number().value_or(0),
          json["control_page"].text(), json["control_inode"].number().value_or(0), json["nonce_addr"].number().value_or(0), json["nonce"].text()};
}

}  // namespace

std::optional<SegmentDescriptor> SegmentDescriptor::read(const Json& json, std::string& error) {
  if (!json.isObject()) {
    error = "the record is not a JSON object";
    return std::nullopt;
  }
  SegmentDescriptor result;
  // The specification writes server_name; Mooncake's engines write name.
  result.serverName = json["server_name"].text(json["name"].text());
  const Json& protocol = json["protocol"];
  result.protocol = protocol.isArray() && !protocol.items().empty() ? protocol.items()[0].text() : protocol.text();
  if (result.protocol.empty()) {
    error = "the record has no protocol";
    return std::nullopt;
  }
  if (!json["buffers"].isNull() && !json["buffers"].isArray()) {
    error = "the record's buffers are not an array";
    return std::nullopt;
  }
  if (result.isFile()) {
    for (const auto& entry : json["buffers"].items()) {
      PublishedFile file;
      file.length = entry["length"].number().value_or(0);
      file.path = entry["file_path"].text();
      for (const auto& [machine, path] : entry["local_path_map"].members()) file.localPaths[machine] = path.text();
      if (file.length == 0) {
        error = "a file of the record has no length";
        return std::nullopt;
      }
      result.files.push_back(std::move(file));
    }
    if (const Json& folder = json["folder"]; folder.isObject())
      result.folder = PublishedFolder{folder["path"].text(), folder["boot_id"].text(), folder["device"].number().value_or(0), folder["inode"].number().value_or(0)};
    return result;
  }
  result.tcpHost = json["tcp_data_host"].text();
  uint64_t port = json["tcp_data_port"].number().value_or(0);
  if (port > 65535) {
    error = "tcp_data_port is " + std::to_string(port);
    return std::nullopt;
  }
  result.tcpPort = uint16_t(port);
  result.tcpVersion = json["tcp_proto_version"].number().value_or(1);
  result.servesFiles = json["tcp_serves_files"].truth();
  result.timestamp = json["timestamp"].text();
  result.instance = json["instance"].text();
  for (const auto& device : json["devices"].items())
    result.devices.push_back({device["name"].text(), device["lid"].number().value_or(0), device["gid"].text()});
  result.priorityMatrix = json["priority_matrix"];
  for (const auto& entry : json["buffers"].items()) {
    auto buffer = readBuffer(entry);
    if (!buffer) {
      error = "a buffer of the record has no address or length";
      return std::nullopt;
    }
    result.buffers.push_back(std::move(*buffer));
  }
  if (json["host"].isObject()) result.host = readHost(json["host"]);
  result.sortBuffers();
  return result;
}

std::string folderOwner(const std::string& segment) {
  constexpr std::string_view prefix = "nvmeof/";
  if (!segment.starts_with(prefix)) return "";
  size_t slash = segment.rfind('/');
  return slash <= prefix.size() || slash + 1 == segment.size() ? "" : segment.substr(prefix.size(), slash - prefix.size());
}

uint64_t SegmentDescriptor::fileBytes() const {
  // Only opening a folder's file shows where it ends.
  if (folder) return FOLDER_BYTES;
  uint64_t length = 0;
  for (const auto& file : files) length += file.length;
  return length;
}

std::string endText(uint64_t offset, uint64_t length, uint64_t segmentLength) {
  return "range at " + std::to_string(offset) + " of " + std::to_string(length) + " bytes passes the end of the segment, which has " + std::to_string(segmentLength);
}

}  // namespace svc
