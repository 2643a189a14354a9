// The files of a segment, accessed through io_uring system calls: one ring per thread that runs requests.
#include "file_transport.h"

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>

#include "svc/transfer_engine.h"

namespace svc {

namespace {
constexpr unsigned DEPTH = 64;
/** Requests are submitted in groups of this size, so that the disk starts before the last one is prepared. */
constexpr unsigned SUBMIT_EVERY = 16;
constexpr uint64_t DIRECT_ALIGNMENT = 4096;
/** The size of the operations into which the aligned middle is cut. */
constexpr uint64_t OPERATION_BYTES = 1 << 20;

bool aligned(uint64_t value) { return value % DIRECT_ALIGNMENT == 0; }
}  // namespace

struct FileOperation {
  int fd = -1;
  uint64_t local = 0, offset = 0, length = 0;
  bool write = false;
  FileRequest* request = nullptr;
  const FileSegment::Part* part = nullptr;
};

class Ring {
 public:
  Ring() {
    for (unsigned i = 0; i < DEPTH; i++) spare_.push_back(i);
    io_uring_params params{};
    // COOP_TASKRUN avoids an interrupt per completion; the thread collects them when it waits. Older kernels lack the flag.
    params.flags = IORING_SETUP_COOP_TASKRUN;
    fd_.reset(int(syscall(SYS_io_uring_setup, DEPTH, &params)));
    if (!fd_) {
      params = {};
      fd_.reset(int(syscall(SYS_io_uring_setup, DEPTH, &params)));
    }
    if (!fd_ || (params.features & IORING_FEAT_SINGLE_MMAP) == 0) return;
    bytes_ = std::max<size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned), params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_.get(), IORING_OFF_SQ_RING);
    entryBytes_ = params.sq_entries * sizeof(io_uring_sqe);
    void* entries = mmap(nullptr, entryBytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_.get(), IORING_OFF_SQES);
    if (base_ == MAP_FAILED || entries == MAP_FAILED) return;
    auto* base = static_cast<char*>(base_);
    entries_ = static_cast<io_uring_sqe*>(entries);
    sqTail_ = reinterpret_cast<unsigned*>(base + params.sq_off.tail);
    sqMask_ = *reinterpret_cast<unsigned*>(base + params.sq_off.ring_mask);
    sqArray_ = reinterpret_cast<unsigned*>(base + params.sq_off.array);
    cqHead_ = reinterpret_cast<unsigned*>(base + params.cq_off.head);
    cqTail_ = reinterpret_cast<unsigned*>(base + params.cq_off.tail);
    cqMask_ = *reinterpret_cast<unsigned*>(base + params.cq_off.ring_mask);
    completions_ = reinterpret_cast<io_uring_cqe*>(base + params.cq_off.cqes);
  }
  ~Ring() {
    if (entries_ != nullptr) munmap(entries_, entryBytes_);
    if (base_ != nullptr && base_ != MAP_FAILED) munmap(base_, bytes_);
  }
  bool works() const { return completions_ != nullptr; }

  /** Runs all operations, DEPTH at a time; `done(operation, result)` may push the rest of a partial one. */
  template <typename Done>
  void run(std::vector<FileOperation>& operations, Done&& done) {
    size_t next = 0, flying = 0;
    while (next < operations.size() || flying > 0) {
      unsigned prepared = 0;
      while (next < operations.size() && !spare_.empty()) {
        unsigned slot = spare_.back();
        spare_.pop_back();
        slots_[slot] = operations[next++];
        prepare(slots_[slot], slot);
        flying++;
        if (++prepared == SUBMIT_EVERY && next < operations.size()) prepared -= enter(prepared, 0);
      }
      // We wait for half of the operations while there are more to submit, otherwise for all: this keeps the disk busy with fewer wake-ups.
      unsigned awaited = unsigned(next < operations.size() ? (flying + 1) / 2 : flying);
      do {
        prepared -= enter(prepared, awaited);
      } while (prepared > 0);
      unsigned head = *cqHead_;
      unsigned tail = std::atomic_ref<unsigned>(*cqTail_).load(std::memory_order_acquire);
      for (; head != tail; head++) {
        const io_uring_cqe& completion = completions_[head & cqMask_];
        FileOperation over = slots_[completion.user_data];
        spare_.push_back(unsigned(completion.user_data));
        flying--;
        done(over, completion.res);
      }
      std::atomic_ref<unsigned>(*cqHead_).store(head, std::memory_order_release);
    }
  }

 private:
  /** Returns how many prepared operations the kernel accepted; with `awaited`, it first waits for that many completions. */
  unsigned enter(unsigned prepared, unsigned awaited) {
    while (true) {
      int code = int(syscall(SYS_io_uring_enter, fd_.get(), prepared, awaited, awaited > 0 ? IORING_ENTER_GETEVENTS : 0, nullptr, 0));
      if (code >= 0) return unsigned(code);
      // A ring that was set up fails in no other way; EBUSY means that completions must be collected first.
      if (errno != EINTR && awaited == 0) return 0;
    }
  }

  void prepare(const FileOperation& operation, unsigned slot) {
    unsigned tail = *sqTail_, index = tail & sqMask_;
    io_uring_sqe& entry = entries_[index];
    memset(&entry, 0, sizeof entry);
    entry.opcode = operation.write ? IORING_OP_WRITE : IORING_OP_READ;
    entry.fd = operation.fd;
    entry.addr = operation.local;
    entry.len = uint32_t(operation.length);
    entry.off = operation.offset;
    entry.user_data = slot;
    sqArray_[index] = index;
    std::atomic_ref<unsigned>(*sqTail_).store(tail + 1, std::memory_order_release);
  }

  Fd fd_;
  std::vector<FileOperation> slots_ = std::vector<FileOperation>(DEPTH);
  std::vector<unsigned> spare_;
  void* base_ = nullptr;
  size_t bytes_ = 0, entryBytes_ = 0;
  io_uring_sqe* entries_ = nullptr;
  unsigned *sqTail_ = nullptr, *sqArray_ = nullptr, *cqHead_ = nullptr, *cqTail_ = nullptr;
  unsigned sqMask_ = 0, cqMask_ = 0;
  io_uring_cqe* completions_ = nullptr;
};

std::shared_ptr<FileSegment> FileSegment::open(const SegmentDescriptor& record, const std::string& machine) {
  auto segment = std::make_shared<FileSegment>();
  uint64_t start = 0;
  for (const auto& file : record.files) {
    auto local = file.localPaths.find(machine);
    // The owner's path is valid only on the owner's machine.
    std::string path = local != file.localPaths.end() ? local->second : record.serverName == machine ? file.path : "";
    if (path.empty()) {
      setLastError("file " + file.path + " of " + record.serverName + " is not mounted on " + machine + "; svc segment mount says where it is");
      return nullptr;
    }
    Part part{path, start, file.length, Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC)), Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_DIRECT))};
    struct stat info{};
    if (!part.buffered || fstat(part.buffered.get(), &info) != 0) {
      setLastError("file " + path + ": " + errnoText());
      return nullptr;
    }
    if (S_ISREG(info.st_mode) && uint64_t(info.st_size) < file.length) {
      setLastError("file " + path + ": the record says " + std::to_string(file.length) + " bytes, it has " + std::to_string(info.st_size));
      return nullptr;
    }
    start += file.length;
    segment->parts_.push_back(std::move(part));
  }
  if (segment->parts_.empty()) {
    setLastError("segment of " + record.serverName + ": its record has no file");
    return nullptr;
  }
  return segment;
}

std::shared_ptr<FileSegment> FileSegment::ofLength(uint64_t length) {
  auto segment = std::make_shared<FileSegment>();
  segment->parts_.push_back({"", 0, length, Fd(), Fd()});
  return segment;
}

FileTransport::FileTransport(bool syncData, std::string engineName, Metrics& metrics) : InstalledTransport("nvmeof"), syncData_(syncData), engineName_(std::move(engineName)), metrics_(metrics) {
  auto ring = std::make_unique<Ring>();
  ringWorks_ = ring->works();
  if (ringWorks_) idle_.push_back(std::move(ring));
  else logLine(LogLevel::Warning, "io_uring cannot be used here (" + errnoText() + "); files are read and written by plain calls");
}
FileTransport::~FileTransport() = default;

void FileTransport::run(const FileSegment& segment, std::vector<FileRequest>& requests) {
  std::vector<FileOperation> operations;
  std::vector<std::unique_ptr<FileSegment::Part>> opened;
  for (auto& request : requests) {
    if (!inside(0, segment.length(), request.offset, request.length)) {
      request.error = endText(request.offset, request.length, segment.length());
      continue;
    }
    uint64_t at = 0;
    const FileSegment::Part* one = nullptr;
    if (segment.isFolder()) {
      if (request.write) {
        request.error = "a folder's files are written by their owner alone";
        continue;
      }
      auto part = segment.fileAt(request.offset, aligned(request.local) && aligned(request.offset), request.error);
      if (!part) continue;
      if (!inside(part->start, part->length, request.offset, request.length)) {
        request.error = part->path + ": " + endText(request.offset - part->start, request.length, part->length);
        continue;
      }
      one = opened.emplace_back(std::move(part)).get();
    }
    const std::span<const FileSegment::Part> parts = one != nullptr ? std::span<const FileSegment::Part>(one, 1) : std::span<const FileSegment::Part>(segment.parts());
    for (const auto& part : parts) {
      while (at < request.length && request.offset + at >= part.start && request.offset + at < part.start + part.length) {
        uint64_t offset = request.offset + at - part.start, left = std::min(request.length - at, part.length - offset);
        uint64_t local = request.local + at, length = left;
        bool direct = part.direct && aligned(offset) && aligned(local) && left >= DIRECT_ALIGNMENT;
        if (direct) length = std::min(left & ~(DIRECT_ALIGNMENT - 1), OPERATION_BYTES);
        // An unaligned start ends where the aligned middle begins.
        else if (part.direct && aligned(local - offset) && !aligned(offset)) length = std::min(left, DIRECT_ALIGNMENT - offset % DIRECT_ALIGNMENT);
        else length = std::min(left, OPERATION_BYTES);
        operations.push_back({direct ? part.direct.get() : part.buffered.get(), local, offset, length, request.write, &request, &part});
        at += length;
      }
    }
  }
  std::vector<FileOperation> more;
  auto done = [&](FileOperation& over, int result) {
    if (result < 0 && (result == -EINTR || result == -EAGAIN)) return more.push_back(over);
    // Some file systems reject O_DIRECT operations.
    if (result == -EINVAL && over.fd == over.part->direct.get()) {
      over.fd = over.part->buffered.get();
      return more.push_back(over);
    }
    if (result <= 0) {
      over.request->error = over.part->path + ": " + (over.write ? "writing" : "reading") + " at " + std::to_string(over.offset) + ": " + (result == 0 ? "the file ends here" : errnoText(-result));
      return;
    }
    if (uint64_t(result) == over.length) return;
    over.local += uint64_t(result);
    over.offset += uint64_t(result);
    over.length -= uint64_t(result);
    over.fd = over.part->buffered.get();
    more.push_back(over);
  };
  std::unique_ptr<Ring> ring;
  if (ringWorks_) {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      ring = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (ringWorks_ && !ring) ring = std::make_unique<Ring>();
  while (!operations.empty()) {
    more.clear();
    if (ring && ring->works()) ring->run(operations, done);
    else
      for (auto& over : operations) {
        ssize_t n = over.write ? pwrite(over.fd, reinterpret_cast<void*>(over.local), over.length, off_t(over.offset)) : pread(over.fd, reinterpret_cast<void*>(over.local), over.length, off_t(over.offset));
        done(over, n < 0 ? -errno : int(n));
      }
    operations.swap(more);
  }
  if (syncData_ && std::any_of(requests.begin(), requests.end(), [](const auto& request) { return request.write; }))
    for (const auto& part : segment.parts())
      if (fdatasync(part.buffered.get()) != 0)
        for (auto& request : requests)
          if (request.write && request.error.empty()) request.error = part.path + ": fdatasync: " + errnoText();
  std::lock_guard lock(mutex_);
  if (ring && idle_.size() < IDLE_RINGS) idle_.push_back(std::move(ring));
}

}  // namespace svc
