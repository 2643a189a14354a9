// The write-ahead log: the records of one turn are one checksummed frame, and answers leave after it.
#pragma once
#include <atomic>
#include <filesystem>
#include <memory>

#include "store.h"
#include "worker.h"

namespace svc {

//  file:  "svcstore" | version u32 | reign u32 | first LSN u64 | frame | frame | ...
//  frame: magic u32 | payload bytes u32 | first LSN u64 | records u32 | 0 u32 | XXH3 of what precedes and of the payload u64 | payload
struct FrameHeader {
  u32 magic = 0, bytes = 0;
  u64 firstLsn = 0;
  u32 records = 0, reserved = 0;
  u64 checksum = 0;
};
static_assert(sizeof(FrameHeader) == 32);

// 4 has disks, 5 a shared folder as well, 6 NOF segments; 1 and 2 (with disks) are those of logs without a lineage and without reasons; they are read as well.
inline constexpr u32 withoutDisks = 3, withoutFolder = 4, withoutNof = 5, newestVersion = 6;

struct FileHeader {
  char magic[8] = {'s', 'v', 'c', 's', 't', 'o', 'r', 'e'};
  u32 version = withoutDisks;
  // A random number for one master's time of leading: where two logs name the same one, the shorter is the beginning of the longer. 0: not known.
  u32 reign = 0;
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
    u64 fileBytes = 64 << 20;   // then a new file begins
    u64 aheadBytes = 16 << 20;  // of the file's room are reserved before they are needed
    u32 version = withoutDisks;  // of the files that are written: the oldest that holds what the settings allow
  };

  // Throws std::runtime_error where the folder cannot be used, or another master uses it.
  Log(Options options, std::function<void()> onDurable);
  ~Log();

  // Reads snapshot and log files into the store, then begins a file of its own. `settles`: the store is as a leader's, not as a standby's.
  Recovery recover(Store& store, bool settles = true);
  // Forgets all that is there: the next record is another master's. False where no file can be made.
  bool startAt(u64 lsn, u32 reign);
  // What follows is of this reign, by the header of the file that begins with it.
  void beginReign(u32 reign);
  u32 reign() const { return reign_; }
  // Whether a log that ends before `nextLsn`, within that reign, is the beginning of this one.
  bool continues(u32 reign, u64 nextLsn) const;
  // Nothing of what is there is kept: it continues no leader's log.
  void wipe() { removeBefore(~u64{0}); }
  // A frame as another master wrote it, up to its last record; `flush` writes it.
  void append(std::string_view frame, u64 lastLsn);
  void flush() {
    if (!unwritten_.empty()) flushUnwritten();
  }
  // Sees each frame that this master writes.
  std::function<void(std::string_view frame)> onFrame;

  // Whether this many bytes of records surely find room; reserves more where it can.
  bool room(u64 bytes, u64 nowMs);
  // Whether the last question about room was answered with no.
  bool full() const { return full_; }
  // The turn's records become a frame; they are kept and tried again where the disk does not take them.
  void write(Journal& journal);
  // The last record that would survive what the settings promise.
  u64 durableLsn() const { return durable_.load(std::memory_order_acquire); }
  u64 writtenLsn() const { return written_; }
  bool stuck() const { return !unwritten_.empty(); }
  u64 bytesSinceSnapshot() const { return sinceSnapshot_; }
  // A new file begins with the next record; its first LSN.
  u64 rotate(u64 nextLsn);
  // Files whose records a snapshot from this LSN on makes needless.
  void removeBefore(u64 lsn);
  const Options& options() const { return options_; }
  // Damaged files get another name once a snapshot has made them needless.
  void setAside(const std::vector<std::string>& names);

 private:
  struct File {
    explicit File(int fd) : fd(fd) {}
    ~File();
    int fd;
  };
  bool readFile(const std::filesystem::path& path, bool isLast, Store& store, u64& nextLsn, Recovery& recovery, bool& whole);
  void begin(u64 firstLsn);
  // False on a full disk.
  bool beginIfRoom(u64 firstLsn);
  void flushUnwritten();
  void noteReign(u32 reign, u64 firstLsn);
  void forgetReigns();

  Options options_;
  std::function<void()> onDurable_;
  int lock_ = -1;
  // None since a start on a full disk, until there is room for one.
  std::shared_ptr<File> file_;
  u64 size_ = 0, reserved_ = 0, sinceSnapshot_ = 0, written_ = 0, unwrittenLsn_ = 0, askedAtMs_ = 0;
  bool full_ = false, reserves_ = true;
  std::string unwritten_;
  u32 reign_ = 0;
  std::vector<std::pair<u32, u64>> reigns_;  // and the first record that is read or written under each
  std::atomic<u64> durable_{0};
  std::unique_ptr<Worker> syncer_;
};

}  // namespace svc
