// Reads the log back: a torn tail is cut off, and damage in the middle costs the objects whose fate it hides.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "log/log.h"

namespace svc {

namespace {

struct Mapped {
  explicit Mapped(const std::filesystem::path& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat found {};
    if (fd >= 0 && fstat(fd, &found) == 0 && found.st_size > 0) {
      size = static_cast<std::size_t>(found.st_size);
      void* at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
      if (at == MAP_FAILED) size = 0;
      else data = static_cast<const char*>(at);
    }
    if (fd >= 0) close(fd);
  }
  ~Mapped() {
    if (data != nullptr) munmap(const_cast<char*>(data), size);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  const char* data = nullptr;
  std::size_t size = 0;
};

bool frameAt(const Mapped& file, std::size_t at, FrameHeader& header) {
  if (file.size - at < sizeof header) return false;
  std::memcpy(&header, file.data + at, sizeof header);
  if (header.magic != frameMagic || header.bytes > file.size - at - sizeof header) return false;
  return checksumOf(header, file.data + at + sizeof header) == header.checksum;
}

// Returns the next intact frame after a broken one, or the file's end.
std::size_t nextFrame(const Mapped& file, std::size_t at) {
  FrameHeader header;
  for (++at; at + sizeof header <= file.size; ++at) {
    u32 magic = 0;
    std::memcpy(&magic, file.data + at, sizeof magic);
    if (magic == frameMagic && frameAt(file, at, header)) return at;
  }
  return file.size;
}

// Nearly all records name a key. Lookups are prefetched for many records at once, since each would wait for memory on its own.
constexpr u32 recordsAhead = 64;
void lookAhead(const Table& table, RecordReader from) {
  u64 hashes[recordsAhead];
  u32 count = 0;
  while (from.more() && count < recordsAhead) {
    const auto kind = static_cast<Record>(from.get<u8>());
    if (kind != Record::object && kind != Record::complete && kind != Record::erased) break;
    const u16 tenant = from.get<u16>();
    hashes[count] = table.hashOf(tenant, from.text());
    table.prefetchSlot(hashes[count++]);
    if (kind == Record::object) from.skip(sizeof(u64) + sizeof(u32) + 2);
    if (kind == Record::erased) continue;
    const u8 what = from.get<u8>();
    from.skip((what & has::checksum ? sizeof(u64) : 0) + (what & has::softPinUntil ? sizeof(u64) : 0) + (what & has::softPinMs ? sizeof(u32) : 0));
    if (kind == Record::complete) continue;
    if (what & has::group) from.text();
    if (what & has::fingerprint) from.text();
    if (what & has::task) from.skip(1 + sizeof(u32));
    from.skip(from.get<u8>() * (sizeof(u32) + sizeof(u64) + 1));
  }
  for (u32 i = 0; i < count; ++i) table.prefetchRecord(hashes[i]);
  for (u32 i = 0; i < count; ++i) table.prefetchKey(hashes[i]);
}

bool apply(Store& store, const char* payload, const FrameHeader& header, bool& ended) {
  RecordReader reader(payload, header.bytes);
  u32 count = 0;
  for (; reader.more(); ++count) {
    // Records are prefetched in small groups, so that they are still cached when they are applied.
    if (count % recordsAhead == 0) lookAhead(store.table, reader);
    ended = static_cast<Record>(static_cast<u8>(*(payload + (header.bytes - reader.left())))) == Record::end;
    if (!store.replay.apply(reader)) return false;
  }
  return count == header.records;
}

}  // namespace

// `whole`: its last record says that it is complete (snapshots). Returns false if something in its middle was lost.
bool Log::readFile(const std::filesystem::path& path, bool isLast, Store& store, u64& nextLsn, Recovery& recovery, bool& whole) {
  const Mapped file(path);
  FileHeader expected, header;
  if (file.size < sizeof header) return isLast;
  std::memcpy(&header, file.data, sizeof header);
  if (std::memcmp(header.magic, expected.magic, sizeof header.magic) != 0 || header.version == 0) return false;
  // A newer release wrote it: quarantining it as damaged would lose what it contains.
  if (header.version > newestVersion)
    throw std::runtime_error(path.string() + " has format " + std::to_string(header.version) + ", this release reads up to " + std::to_string(newestVersion) +
                             ": start the release that wrote it");
  bool sound = true;
  noteTerm(header.term, header.firstLsn);
  std::size_t at = sizeof header;
  while (at < file.size) {
    FrameHeader frame;
    const bool good = frameAt(file, at, frame) && frame.firstLsn >= nextLsn;
    if (good && frame.firstLsn == nextLsn && apply(store, file.data + at + sizeof frame, frame, whole)) {
      recovery.records += frame.records;
      nextLsn += frame.records;
      at += sizeof frame + frame.bytes;
      continue;
    }
    const std::size_t next = good ? at : nextFrame(file, at);
    if (next >= file.size && isLast) {
      recovery.tornBytes += file.size - at;
      std::error_code wrong;
      std::filesystem::resize_file(path, at, wrong);
      return sound;
    }
    sound = false;
    // The missing records may have erased any object, and given its bytes to another.
    recovery.forgotten += store.table.size();
    store.replay.forgetObjects();
    if (next >= file.size) return false;
    if (!frameAt(file, next, frame)) return false;
    nextLsn = frame.firstLsn;
    if (good && !apply(store, file.data + next + sizeof frame, frame, whole)) return false;
    if (good) {
      nextLsn += frame.records;
      at = next + sizeof frame + frame.bytes;
    } else {
      at = next;
    }
  }
  return sound;
}

Recovery Log::recover(Store& store, bool settles) {
  Recovery recovery;
  std::vector<std::string> logs, snapshots;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
    const std::string name = entry.path().filename().string();
    std::error_code wrong;
    if (name.ends_with(".part")) std::filesystem::remove(entry.path(), wrong);
    else if (name.starts_with("log-") && name.ends_with(".log")) logs.push_back(name);
    else if (name.starts_with("snapshot-") && name.ends_with(".log")) snapshots.push_back(name);
  }
  std::sort(logs.begin(), logs.end());
  std::sort(snapshots.begin(), snapshots.end());
  const auto lsnOf = [](const std::string& name) { return std::stoull(name.substr(name.find('-') + 1, 16), nullptr, 16); };
  u64 nextLsn = 1;
  if (!snapshots.empty()) {
    const std::string& name = snapshots.back();
    u64 frames = 1;
    bool whole = false;
    if (!readFile(options_.folder / name, false, store, frames, recovery, whole) || !whole) {
      recovery.damaged.push_back(name);
      recovery.forgotten += store.table.size();
      store.replay.forgetObjects();
    }
    nextLsn = lsnOf(name);
  }
  for (const std::string& name : logs) {
    const u64 first = lsnOf(name);
    if (first < nextLsn) {
      // A snapshot begins with a new log file, so a file is needed as a whole or not at all: an older one is skipped.
      const auto after = std::upper_bound(logs.begin(), logs.end(), name);
      if (after != logs.end() && lsnOf(*after) <= nextLsn) continue;
      if (!snapshots.empty()) continue;
    }
    if (first > nextLsn) {
      recovery.damaged.push_back(name + " (records " + std::to_string(nextLsn) + " to " + std::to_string(first - 1) + " before it are missing)");
      recovery.forgotten += store.table.size();
      store.replay.forgetObjects();
      nextLsn = first;
    }
    bool whole = false;
    if (!readFile(options_.folder / name, name == logs.back(), store, nextLsn, recovery, whole)) recovery.damaged.push_back(name);
  }
  // A single master's records belong to no leader, and a damaged log is a prefix of nothing.
  if (settles || !recovery.damaged.empty()) forgetTerms();
  if (settles) store.replay.end();
  recovery.objects = store.table.size();
  store.journal.clear();
  store.journal.nextLsn = nextLsn;
  written_ = nextLsn - 1;
  durable_.store(written_, std::memory_order_release);
  for (const std::string& name : logs) {
    std::error_code wrong;
    sinceSnapshot_ += std::filesystem::file_size(options_.folder / name, wrong);
  }
  // This may replace an empty file of a start that did nothing. On a full disk the first change that finds space begins the file.
  beginIfSpace(nextLsn);
  return recovery;
}

}  // namespace svc
