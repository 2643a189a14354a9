// The write-ahead log: the records of one loop iteration form one checksummed frame, and answers are sent after it is written.
#pragma once
#include <atomic>
#include <filesystem>
#include <memory>

#include "store.h"
#include "base/worker.h"

namespace svc {

//  file:  "svcstore" | version u32 | term u32 | first LSN u64 | frame | frame | ...
//  frame: magic u32 | payload bytes u32 | first LSN u64 | records u32 | 0 u32 | XXH3 of what precedes and of the payload u64 | payload
struct FrameHeader {
  u32 magic = 0, bytes = 0;
  u64 firstLsn = 0;
  u32 records = 0, reserved = 0;
  u64 checksum = 0;
};
static_assert(sizeof(FrameHeader) == 32);

// Version 4 adds disks, 5 a shared folder, 6 NOF segments. Versions 1 and 2 (2 with disks) lack lineages and reasons; they are read as well.
inline constexpr u32 withoutDisks = 3, withoutFolder = 4, withoutNof = 5, newestVersion = 6;

struct FileHeader {
  char magic[8] = {'s', 'v', 'c', 's', 't', 'o', 'r', 'e'};
  u32 version = withoutDisks;
  // A random number per term of a leader: if two logs name the same one, the shorter is a prefix of the longer. 0: unknown.
  u32 term = 0;
  u64 firstLsn = 0;
};
static_assert(sizeof(FileHeader) == 24);

inline constexpr u32 frameMagic = 0x31'4c'56'53;
u64 checksumOf(FrameHeader header, const char* payload);
std::string fileName(const char* kind, u64 lsn);

struct Recovery {
  u64 records = 0, objects = 0, forgotten = 0, tornBytes = 0;
  std::vector<std::string> damaged;  // file names
};

class Log {
 public:
  struct Options {
    std::filesystem::path folder;
    bool disk = false;          // an answer waits for fdatasync
    u64 fileBytes = 64 << 20;   // the log continues in a new file beyond this size
    u64 aheadBytes = 16 << 20;  // reserved in the file before they are needed
    u32 version = withoutDisks;  // the oldest format that holds what the settings allow
  };

  // Throws std::runtime_error if the folder cannot be used or another master uses it.
  Log(Options options, std::function<void()> onDurable);
  ~Log();

  // Reads snapshot and log files into the store, then begins a new file. `settles`: prepares the store for a leader, not for a standby.
  Recovery recover(Store& store, bool settles = true);
  // Discards the log: the next record is another master's. Returns false if no file can be created.
  bool startAt(u64 lsn, u32 term);
  // Puts the following records under this term, in a new file whose header names it.
  void beginTerm(u32 term);
  u32 term() const { return term_; }
  // Returns whether a log of that term that ends before `nextLsn` is a prefix of this one.
  bool continues(u32 term, u64 nextLsn) const;
  // Removes all files, since they continue no leader's log.
  void wipe() { removeBefore(~u64{0}); }
  // Appends a frame that another master wrote, up to its last record; `flush` writes it.
  void append(std::string_view frame, u64 lastLsn);
  void flush() {
    if (!unwritten_.empty()) flushUnwritten();
  }
  // Called with each frame that this master writes.
  std::function<void(std::string_view frame)> onFrame;

  // Returns whether this many bytes of records certainly fit; reserves more space if it can.
  bool hasSpace(u64 bytes, u64 nowMs);
  // Returns whether the last call of `hasSpace` found too little space.
  bool full() const { return full_; }
  // Writes the pending records as one frame; if the disk refuses them, they are kept and written later.
  void write(Journal& journal);
  // Returns the last record that is as durable as the settings promise.
  u64 durableLsn() const { return durable_.load(std::memory_order_acquire); }
  u64 writtenLsn() const { return written_; }
  bool stuck() const { return !unwritten_.empty(); }
  u64 bytesSinceSnapshot() const { return sinceSnapshot_; }
  // Continues in a new file from the next record on; returns its first LSN, or 0 without space.
  u64 rotate(u64 nextLsn);
  // Removes the files that a snapshot from this LSN on replaces.
  void removeBefore(u64 lsn);
  const Options& options() const { return options_; }
  // Renames damaged files, once a snapshot has replaced them.
  void quarantine(const std::vector<std::string>& names);

 private:
  struct File {
    explicit File(int fd) : fd(fd) {}
    ~File();
    int fd;
  };
  bool readFile(const std::filesystem::path& path, bool isLast, Store& store, u64& nextLsn, Recovery& recovery, bool& whole);
  void begin(u64 firstLsn);
  // Returns false on a full disk.
  bool beginIfSpace(u64 firstLsn);
  void flushUnwritten();
  void noteTerm(u32 term, u64 firstLsn);
  void forgetTerms();

  Options options_;
  std::function<void()> onDurable_;
  int lock_ = -1;
  // Null after a start on a full disk, until a file can be created.
  std::shared_ptr<File> file_;
  u64 size_ = 0, reserved_ = 0, sinceSnapshot_ = 0, written_ = 0, unwrittenLsn_ = 0, askedAtMs_ = 0;
  bool full_ = false, reserves_ = true;
  std::string unwritten_;
  u32 term_ = 0;
  std::vector<std::pair<u32, u64>> terms_;  // each term with the first record read or written under it
  std::atomic<u64> durable_{0};
  std::unique_ptr<Worker> syncer_;
};

}  // namespace svc
