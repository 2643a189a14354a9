// The methods for files in the shared folder, for writers, evicting clients and the leader's sweep.
#include "addon/disks.h"

namespace svc {

namespace {

napi_value codesOfFiles(const Call& call, const std::vector<i32>& codes) {
  return call.listOf(codes, [&](i32 code) { return call.of(static_cast<double>(code)); });
}

}  // namespace

// () → JSON; "" if there is none
napi_value sharedFolder(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  return call.of(std::string_view(server.with([&] { return folderJson(server.store); })));
}

// (client id, tenant, [{key, sizeBytes, checksum}...]) → for each its path and number, or an error code
napi_value startFiles(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid client = idAt(call, call.at(0));
  const std::string tenant = call.bytes(1);
  struct Wanted {
    std::string key;
    u64 size, checksum;
  };
  std::vector<Wanted> wanted;
  eachOf(call, 2, [&](napi_value each) { wanted.push_back({call.bytes(get(call, each, "key")), call.bigOf(get(call, each, "sizeBytes")), call.bigOf(get(call, each, "checksum"))}); });
  struct Started {
    i32 code = code::persistFail;
    u64 file = 0;
    std::string path;
  };
  std::vector<Started> started(wanted.size());
  server.change([&] {
    Store& store = server.store;
    for (std::size_t i = 0; i < wanted.size() && server.canLog(); ++i) {
      Started& each = started[i];
      each.code = store.folder.segment() == nullptr ? code::unableOffload : store.folder.startFile(client, store.tenants.numberOf(tenant), wanted[i].key, wanted[i].size, wanted[i].checksum, each.file);
      if (each.code == code::ok) each.path = store.folder.pathOf(*store.folder.segment(), each.file);
    }
  });
  return call.listOf(started, [&](const Started& each) {
    return each.code == code::ok ? call.record({{"path", call.latin1(each.path)}, {"file", call.big(each.file)}}) : call.of(static_cast<double>(each.code));
  });
}

// (client id, tenant, [{key, file, isWhole}...]) → a code for each
napi_value endFiles(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const Uuid client = idAt(call, call.at(0));
  const std::string tenant = call.bytes(1);
  struct Ended {
    std::string key;
    u64 file;
    bool whole;
  };
  std::vector<Ended> files;
  eachOf(call, 2, [&](napi_value each) { files.push_back({call.bytes(get(call, each, "key")), call.bigOf(get(call, each, "file")), call.flag(get(call, each, "isWhole"))}); });
  std::vector<i32> codes;
  server.change([&] {
    for (const Ended& each : files) codes.push_back(server.canLog() ? server.store.folder.endFile(client, server.store.tenants.numberOf(tenant), each.key, each.file, each.whole) : i32{code::persistFail});
  });
  return codesOfFiles(call, codes);
}

// (tenant, keys) → a code for each
napi_value evictFiles(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  const std::string tenant = call.bytes(0);
  const std::vector<std::string> keys = call.list(1);
  std::vector<i32> codes;
  server.change([&] {
    for (const std::string& key : keys) codes.push_back(server.canLog() ? server.store.folder.evictFile(server.store.tenants.numberOf(tenant), key) : i32{code::persistFail});
  });
  return codesOfFiles(call, codes);
}

// (limit in bytes of all files together)
napi_value setFolderQuota(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  server.change([&] {
    if (Segment* folder = server.store.folder.segment(); folder != nullptr) folder->disk->capacity = call.bigOf(call.at(0));
  });
  return call.undefined();
}

// (most) → [{name, file}...]: files to remove
napi_value sweepable(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  std::vector<std::pair<std::string, u64>> found;
  server.with([&] {
    const Store& store = server.store;
    for (const u64 file : store.folder.sweepable(static_cast<u32>(call.number(0)))) found.emplace_back(store.folder.nameOf(*store.folder.segment(), file), file);
  });
  return call.listOf(found, [&](const auto& each) { return call.record({{"name", call.latin1(each.first)}, {"file", call.big(each.second)}}); });
}

// (numbers of files that were removed)
napi_value swept(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  std::vector<u64> files;
  eachOf(call, 0, [&](napi_value each) { files.push_back(call.bigOf(each)); });
  server.change([&] {
    if (server.canLog()) server.store.folder.swept(files);
  });
  return call.undefined();
}

// (most) → [{tenant, key, name, file, sizeBytes, checksum or undefined}...]: files that a reader found damaged or missing
napi_value reportedFiles(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  struct Reported {
    Disk::Report report;
    Ordered object;
    std::string name;
  };
  std::vector<Reported> found;
  server.change([&] {
    Store& store = server.store;
    Segment* folder = store.folder.segment();
    if (folder == nullptr) return;
    std::vector<Disk::Report>& reported = folder->disk->reported;
    const std::size_t most = static_cast<std::size_t>(call.number(0));
    while (!reported.empty() && found.size() < most) {
      const Disk::Report each = reported.back();
      reported.pop_back();
      const auto at = folder->disk->folder->objects.find(each.file);
      if (at != folder->disk->folder->objects.end() && !(store.table[at->second].flags & flag::filing)) found.push_back({each, ordered(store, at->second), store.folder.nameOf(*folder, each.file)});
    }
  });
  return call.listOf(found, [&](const Reported& each) {
    const Ordered& from = each.object;
    return call.record({{"tenant", call.latin1(from.tenant)},
                        {"key", call.latin1(from.key)},
                        {"name", call.latin1(each.name)},
                        {"file", call.big(each.report.file)},
                        {"sizeBytes", call.of(static_cast<double>(from.size))},
                        {"checksum", from.hasChecksum ? call.big(from.checksum) : call.undefined()}});
  });
}

// (tenant, key, number, whether it is damaged and not missing) → code
napi_value dropFile(Addon& addon, const Call& call) {
  const std::string tenant = call.bytes(0), key = call.bytes(1);
  const u64 file = call.bigOf(call.at(2));
  const Gone why = call.flag(3) ? Gone::checksum : Gone::holderLost;
  return changing(addon, call, [&](Store& store) { return store.folder.segment() == nullptr ? i32{code::segmentNotFound} : store.disks.dropFile(*store.folder.segment(), store.tenants.numberOf(tenant), key, file, why); });
}

}  // namespace svc
