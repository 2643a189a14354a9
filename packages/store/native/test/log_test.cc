// A log that is cut at any byte gives a prefix of what was written; one with a flipped bit never gives bytes to the wrong object.
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "log/snapshot.h"
#include "check.h"

namespace svc {

namespace {

struct ScratchFolder {
  std::filesystem::path path;
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "svc-log-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~ScratchFolder() { std::filesystem::remove_all(path); }
};

std::map<std::string, u64> objectsOf(Store& store) {
  std::map<std::string, u64> out;
  for (u32 index = 1; index < store.table.end(); ++index)
    if (store.table.live(index)) out[std::string(store.table.keyOf(index))] = store.table[index].size;
  return out;
}

Log::Options optionsOf(const std::filesystem::path& path) {
  Log::Options options;
  options.folder = path;
  options.fileBytes = 20'000;
  options.aheadBytes = 4'096;
  return options;
}

}  // namespace

void testLog(Chance& chance, u32 rounds) {
  for (u32 round = 0; round < rounds * 30; ++round) {
    const ScratchFolder folder;
    const Settings settings;
    // Every state that was ever acknowledged; the newest is the last.
    std::vector<std::map<std::string, u64>> history;
    const bool withSnapshot = below(chance, 2) == 0;
    {
      Store store(settings, 1);
      store.at(1'000);
      Log log(optionsOf(folder.path), [] {});
      log.recover(store);
      Snapshot snapshot(log, store);
      const Uuid id{1, 2};
      SegmentSpec spec;
      spec.id = {3, 4};
      spec.name = spec.endpoint = "host:1";
      spec.sizeBytes = 1 << 30;
      REQUIRE(store.holders.mount(spec, id) == 0);
      for (u32 step = 0; step < 300; ++step) {
        const std::string key = "key-" + std::to_string(below(chance, 60));
        u32 index = 0;
        store.puts.start(store.holders.clientOf(id), 0, key, 1 + below(chance, 1'000), PutPolicy(), "", index);
        store.puts.end(id, 0, key, std::nullopt);
        if (below(chance, 3) == 0) store.puts.remove(0, "key-" + std::to_string(below(chance, 60)), true);
        REQUIRE(log.hasSpace(10'000, store.nowMs()));
        log.write(store.journal);
        history.push_back(objectsOf(store));
        if (withSnapshot && step == 150) REQUIRE(snapshot.begin());
        if (snapshot.running()) snapshot.some();
      }
      while (snapshot.running()) snapshot.some();
    }
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
      if (entry.path().filename().string().starts_with("log-") && std::filesystem::file_size(entry.path()) > 24) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    const auto recover = [&](Recovery& found) {
      Store store(settings, 2);
      store.at(1'000);
      Log log(optionsOf(folder.path), [] {});
      found = log.recover(store);
      return objectsOf(store);
    };
    Recovery found;
    REQUIRE(recover(found) == history.back() && found.damaged.empty());
    // The recovery began a file of its own, which has no record yet.
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
      if (std::filesystem::file_size(entry.path()) == 24) std::filesystem::remove(entry.path());
    if (below(chance, 2) == 0) {
      // A torn tail gives an earlier state, as a whole.
      const u64 size = std::filesystem::file_size(files.back());
      std::filesystem::resize_file(files.back(), 24 + below(chance, size - 24));
      const auto state = recover(found);
      REQUIRE(found.damaged.empty());
      REQUIRE(state.empty() || std::find(history.begin(), history.end(), state) != history.end());
    } else {
      const auto& file = files[below(chance, files.size())];
      const u64 at = 24 + below(chance, std::filesystem::file_size(file) - 24);
      std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(static_cast<std::streamoff>(at));
      const char was = static_cast<char>(stream.get());
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(static_cast<char>(was ^ (1 << below(chance, 8))));
      stream.close();
      const auto state = recover(found);
      // Every recovered object existed at the end, unless the damage was in the tail.
      if (found.tornBytes == 0) {
        REQUIRE(!found.damaged.empty());
        for (const auto& [key, size] : state) REQUIRE(history.back().contains(key) && history.back().at(key) == size);
      }
    }
    Recovery again;
    recover(again);
  }
}

}  // namespace svc
