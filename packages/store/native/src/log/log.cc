// Writes the log: space is reserved ahead, with one write per loop iteration and, if configured, one fdatasync per group.
#include "log/log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <stdexcept>
#include <system_error>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace svc {

u64 checksumOf(FrameHeader header, const char* payload) {
  header.checksum = 0;
  return XXH3_64bits_withSeed(payload, header.bytes, XXH3_64bits(&header, sizeof header));
}

std::string fileName(const char* kind, u64 lsn) {
  char text[48];
  std::snprintf(text, sizeof text, "%s-%016llx.log", kind, static_cast<unsigned long long>(lsn));
  return text;
}

Log::File::~File() { close(fd); }

Log::Log(Options options, std::function<void()> onDurable) : options_(std::move(options)), onDurable_(std::move(onDurable)) {
  std::error_code wrong;
  std::filesystem::create_directories(options_.folder, wrong);
  const std::string path = (options_.folder / "lock").string();
  lock_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_ < 0) throw std::runtime_error(path + ": " + std::strerror(errno));
  if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    close(lock_);
    throw std::runtime_error(options_.folder.string() + " is used by another master");
  }
  if (options_.disk) syncer_ = std::make_unique<Worker>();
}

Log::~Log() {
  syncer_.reset();
  file_.reset();
  if (lock_ >= 0) close(lock_);
}

void Log::begin(u64 firstLsn) {
  const std::string path = (options_.folder / fileName("log", firstLsn)).string();
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) throw std::system_error(errno, std::generic_category(), path);
  FileHeader header;
  header.version = options_.version;
  header.term = term_;
  header.firstLsn = firstLsn;
  const ssize_t wrote = ::write(fd, &header, sizeof header);
  if (wrote != static_cast<ssize_t>(sizeof header)) {
    // A short write means that the disk is full.
    const int why = wrote < 0 ? errno : ENOSPC;
    close(fd);
    unlink(path.c_str());
    throw std::system_error(why, std::generic_category(), path);
  }
  file_ = std::make_shared<File>(fd);
  size_ = reserved_ = sizeof header;
}

bool Log::beginIfSpace(u64 firstLsn) {
  try {
    begin(firstLsn);
    return true;
  } catch (const std::system_error& error) {
    if (error.code().value() != ENOSPC && error.code().value() != EDQUOT) throw;
    return !(full_ = true);
  }
}

bool Log::hasSpace(u64 bytes, u64 nowMs) {
  if (!unwritten_.empty()) return !(full_ = true);
  if (size_ + bytes <= reserved_) return !(full_ = false);
  // While the disk is full, it is probed only once per `againMs`.
  constexpr u64 againMs = 100;
  if (full_ && nowMs < askedAtMs_ + againMs) return false;
  askedAtMs_ = nowMs;
  if (!file_ && !beginIfSpace(written_ + 1)) return false;
  const u64 wanted = size_ + bytes + options_.aheadBytes;
  if (reserves_) {
    if (fallocate(file_->fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(size_), static_cast<off_t>(wanted - size_)) == 0) {
      reserved_ = wanted;
      return !(full_ = false);
    }
    // A file system that cannot reserve space reports a full disk at the write, which is then retried.
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
      reserves_ = false;
    } else if (fallocate(file_->fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(size_), static_cast<off_t>(bytes)) == 0) {
      reserved_ = size_ + bytes;
      return !(full_ = false);
    }
  }
  if (!reserves_) reserved_ = wanted;
  return !(full_ = reserves_);
}

void Log::write(Journal& journal) {
  if (journal.count > 0) {
    FrameHeader header;
    header.magic = frameMagic;
    header.bytes = static_cast<u32>(journal.pending.size());
    header.firstLsn = journal.nextLsn - journal.count;
    header.records = journal.count;
    header.checksum = checksumOf(header, journal.pending.data());
    const std::size_t from = unwritten_.size();
    append(std::string_view(reinterpret_cast<const char*>(&header), sizeof header), journal.nextLsn - 1);
    unwritten_.append(journal.pending);
    journal.clear();
    if (onFrame) onFrame(std::string_view(unwritten_).substr(from));
  }
  flush();
}

void Log::append(std::string_view frame, u64 lastLsn) {
  unwritten_.append(frame);
  unwrittenLsn_ = lastLsn;
}

bool Log::startAt(u64 lsn, u32 term) {
  wipe();
  terms_.clear();
  noteTerm(term, lsn);
  try {
    begin(lsn);
  } catch (const std::runtime_error&) {
    return false;
  }
  unwritten_.clear();
  sinceSnapshot_ = 0;
  written_ = unwrittenLsn_ = lsn - 1;
  durable_.store(written_, std::memory_order_release);
  return true;
}

void Log::noteTerm(u32 term, u64 firstLsn) {
  term_ = term;
  if (!terms_.empty() && terms_.back().first == term) return;
  // A former term that would begin after this one has no records.
  while (!terms_.empty() && terms_.back().second > firstLsn) terms_.pop_back();
  terms_.push_back({term, firstLsn});
  // A standby that missed more terms than this takes in the whole state.
  constexpr std::size_t mostTerms = 64;
  if (terms_.size() > mostTerms) terms_.erase(terms_.begin());
}

void Log::forgetTerms() {
  term_ = 0;
  terms_.clear();
}

void Log::beginTerm(u32 term) {
  if (term == term_) return;
  const bool written = unwritten_.empty() && file_ != nullptr;
  if (written) noteTerm(term, written_ + 1);
  if (written && rotate(written_ + 1) != 0) return;
  // The open file's header is wrong now and no other file can be begun, so it names no term: standbys then take in the whole state.
  forgetTerms();
  const u32 none = 0;
  if (file_ && pwrite(file_->fd, &none, sizeof none, offsetof(FileHeader, term)) != sizeof none) throw std::runtime_error("the log's header cannot be written");
}

bool Log::continues(u32 term, u64 nextLsn) const {
  if (term == 0 || nextLsn > std::max(written_, unwrittenLsn_) + 1) return false;
  for (std::size_t at = 0; at < terms_.size(); ++at)
    if (terms_[at].first == term) return at + 1 == terms_.size() || nextLsn <= terms_[at + 1].second;
  return false;
}

void Log::flushUnwritten() {
  if (!file_ && !beginIfSpace(written_ + 1)) return;
  std::size_t at = 0;
  while (at < unwritten_.size()) {
    const ssize_t wrote = ::write(file_->fd, unwritten_.data() + at, unwritten_.size() - at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    at += static_cast<std::size_t>(wrote);
  }
  size_ += at;
  sinceSnapshot_ += at;
  unwritten_.erase(0, at);
  if (!unwritten_.empty()) return;
  constexpr std::size_t keptBytes = 4 << 20;
  if (unwritten_.capacity() > keptBytes) unwritten_.shrink_to_fit();
  written_ = unwrittenLsn_;
  if (!options_.disk) {
    durable_.store(written_, std::memory_order_release);
  } else {
    syncer_->add([this, file = file_, lsn = written_] {
      // An earlier job has synced these records already.
      if (durable_.load(std::memory_order_acquire) >= lsn) return;
      if (fdatasync(file->fd) != 0) return;
      durable_.store(lsn, std::memory_order_release);
      onDurable_();
    });
  }
  if (size_ >= options_.fileBytes) rotate(written_ + 1);
}

u64 Log::rotate(u64 nextLsn) {
  const std::shared_ptr<File> before = file_;
  const u64 size = size_, reserved = reserved_;
  try {
    begin(nextLsn);
  } catch (const std::runtime_error&) {
    // Without space for another file, the old one is continued.
    file_ = before;
    size_ = size;
    reserved_ = reserved;
    return 0;
  }
  // The unused reservation is given back.
  if (before && ftruncate(before->fd, static_cast<off_t>(size)) != 0) return nextLsn;
  return nextLsn;
}

void Log::removeBefore(u64 lsn) {
  std::error_code wrong;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder, wrong)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.size() == std::strlen("log-0123456789abcdef.log") && name.starts_with("log-");
    if (ours && name < fileName("log", lsn)) std::filesystem::remove(entry.path(), wrong);
    if (name.starts_with("snapshot-") && name.ends_with(".log") && name < fileName("snapshot", lsn)) std::filesystem::remove(entry.path(), wrong);
  }
}

void Log::quarantine(const std::vector<std::string>& names) {
  std::error_code wrong;
  for (const std::string& name : names) std::filesystem::rename(options_.folder / name, options_.folder / (name + ".damaged"), wrong);
}

}  // namespace svc
