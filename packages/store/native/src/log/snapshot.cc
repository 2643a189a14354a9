// Writes a snapshot file frame by frame, and replaces the log files before it.
#include "log/snapshot.h"

#include <fcntl.h>
#include <unistd.h>

namespace svc {

Snapshot::~Snapshot() {
  if (running()) giveUp();
}

bool Snapshot::begin() {
  if (running() || log_.stuck()) return false;
  lsn_ = log_.rotate(store_.journal.nextLsn);
  if (lsn_ == 0) return false;
  const std::string path = (log_.options().folder / (fileName("snapshot", lsn_) + ".part")).string();
  fd_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd_ < 0) return false;
  FileHeader header;
  header.version = log_.options().version;
  header.term = log_.term();
  header.firstLsn = lsn_;
  journal_ = Journal();
  journal_.epochMs = store_.journal.epochMs;
  cursor_ = 1;
  objects_ = 0;
  store_.replay.snapshotHead(journal_);
  if (write(fd_, &header, sizeof header) == static_cast<ssize_t>(sizeof header) && frame()) return true;
  giveUp();
  return false;
}

bool Snapshot::frame() {
  if (journal_.count == 0) return true;
  FrameHeader header;
  header.magic = frameMagic;
  header.bytes = static_cast<u32>(journal_.pending.size());
  header.firstLsn = journal_.nextLsn - journal_.count;
  header.records = journal_.count;
  header.checksum = checksumOf(header, journal_.pending.data());
  const bool wrote = write(fd_, &header, sizeof header) == static_cast<ssize_t>(sizeof header) &&
                     write(fd_, journal_.pending.data(), journal_.pending.size()) == static_cast<ssize_t>(journal_.pending.size());
  journal_.clear();
  return wrote;
}

void Snapshot::giveUp() {
  close(fd_);
  fd_ = -1;
  unlink((log_.options().folder / (fileName("snapshot", lsn_) + ".part")).c_str());
}

bool Snapshot::some() {
  if (!running()) return false;
  const u32 next = store_.replay.snapshotSome(journal_, cursor_);
  objects_ += journal_.count;
  if (next == 0) journal_.end(objects_);
  if (!frame()) {
    giveUp();
    return false;
  }
  if (next != 0) {
    cursor_ = next;
    return true;
  }
  finishing_.store(true, std::memory_order_release);
  worker_.add([this, fd = fd_, lsn = lsn_, damaged = std::move(damaged)] {
    struct Ended {
      std::atomic<bool>& finishing;
      ~Ended() { finishing.store(false, std::memory_order_release); }
    } ended{finishing_};
    const std::filesystem::path folder = log_.options().folder;
    const bool safe = fdatasync(fd) == 0;
    close(fd);
    std::error_code wrong;
    const std::filesystem::path part = folder / (fileName("snapshot", lsn) + ".part");
    if (!safe) {
      std::filesystem::remove(part, wrong);
      return;
    }
    std::filesystem::rename(part, folder / fileName("snapshot", lsn), wrong);
    if (wrong) return;
    log_.quarantine(damaged);
    log_.removeBefore(lsn);
    taken_.fetch_add(1, std::memory_order_relaxed);
  });
  damaged.clear();
  fd_ = -1;
  return false;
}

}  // namespace svc
