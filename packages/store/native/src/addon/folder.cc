// The methods for files in the shared folder, for writers, evicting clients and the leader's sweep.
#include "addon/disks.h"

namespace svc {

namespace {

napi_value codesOfFiles(const Call& call, const std::vector<i32>& codes) {
  const napi_value out = call.array(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i) call.set(out, i, call.of(static_cast<double>(codes[i])));
  return out;
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
  eachOf(call, 2, [&](napi_value each) { wanted.push_back({call.bytes(get(call, each, "key")), call.big(get(call, each, "sizeBytes")), call.big(get(call, each, "checksum"))}); });
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
      each.code = store.folder() == nullptr ? code::unableOffload : store.startFile(client, store.tenantOf(tenant), wanted[i].key, wanted[i].size, wanted[i].checksum, each.file);
      if (each.code == code::ok) each.path = store.pathOf(*store.folder(), each.file);
    }
  });
  const napi_value out = call.array(started.size());
  for (std::size_t i = 0; i < started.size(); ++i) {
    if (started[i].code != code::ok) {
      call.set(out, i, call.of(static_cast<double>(started[i].code)));
      continue;
    }
    const napi_value each = object(call);
    put(call, each, "path", call.latin1(started[i].path));
    put(call, each, "file", big(call, started[i].file));
    call.set(out, i, each);
  }
  return out;
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
  eachOf(call, 2, [&](napi_value each) { files.push_back({call.bytes(get(call, each, "key")), call.big(get(call, each, "file")), call.flag(get(call, each, "isWhole"))}); });
  std::vector<i32> codes;
  server.change([&] {
    for (const Ended& each : files) codes.push_back(server.canLog() ? server.store.endFile(client, server.store.tenantOf(tenant), each.key, each.file, each.whole) : i32{code::persistFail});
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
    for (const std::string& key : keys) codes.push_back(server.canLog() ? server.store.evictFile(server.store.tenantOf(tenant), key) : i32{code::persistFail});
  });
  return codesOfFiles(call, codes);
}

// (limit in bytes of all files together)
napi_value setFolderQuota(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  server.change([&] {
    if (Segment* folder = server.store.folder(); folder != nullptr) folder->disk->capacity = call.big(call.at(0));
  });
  return call.undefined();
}

// (most) → [path, number, ...] of files to remove
napi_value sweepable(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  std::vector<std::pair<std::string, u64>> found;
  server.with([&] {
    const Store& store = server.store;
    for (const u64 file : store.sweepable(static_cast<u32>(call.number(0)))) found.emplace_back(store.nameOf(*store.folder(), file), file);
  });
  const napi_value out = call.array(2 * found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    call.set(out, 2 * i, call.latin1(found[i].first));
    call.set(out, 2 * i + 1, big(call, found[i].second));
  }
  return out;
}

// (numbers of files that were removed)
napi_value swept(Addon& addon, const Call& call) {
  Server& server = serving(addon);
  std::vector<u64> files;
  eachOf(call, 0, [&](napi_value each) { files.push_back(call.big(each)); });
  server.change([&] {
    if (server.canLog()) server.store.swept(files);
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
    Segment* folder = store.folder();
    if (folder == nullptr) return;
    std::vector<Disk::Report>& reported = folder->disk->reported;
    const std::size_t most = static_cast<std::size_t>(call.number(0));
    while (!reported.empty() && found.size() < most) {
      const Disk::Report each = reported.back();
      reported.pop_back();
      const auto at = folder->disk->folder->objects.find(each.file);
      if (at != folder->disk->folder->objects.end() && !(store.table[at->second].flags & flag::filing)) found.push_back({each, ordered(store, at->second), store.nameOf(*folder, each.file)});
    }
  });
  const napi_value out = call.array(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const napi_value each = object(call);
    const Ordered& from = found[i].object;
    put(call, each, "tenant", call.latin1(from.tenant));
    put(call, each, "key", call.latin1(from.key));
    put(call, each, "name", call.latin1(found[i].name));
    put(call, each, "file", big(call, found[i].report.file));
    put(call, each, "sizeBytes", call.of(static_cast<double>(from.size)));
    put(call, each, "checksum", from.hasChecksum ? big(call, from.checksum) : call.undefined());
    call.set(out, i, each);
  }
  return out;
}

// (tenant, key, number, whether it is damaged and not missing) → code
napi_value dropFile(Addon& addon, const Call& call) {
  const std::string tenant = call.bytes(0), key = call.bytes(1);
  const u64 file = call.big(call.at(2));
  const Gone why = call.flag(3) ? Gone::checksum : Gone::holderLost;
  return changing(addon, call, [&](Store& store) { return store.folder() == nullptr ? i32{code::segmentNotFound} : store.dropFile(*store.folder(), store.tenantOf(tenant), key, file, why); });
}

}  // namespace svc
