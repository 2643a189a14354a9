// Copies to and from processes of this host, each checked against the owner's control page before it begins.
#include "same_host.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

namespace svc {

namespace {
constexpr uint64_t ALIVE_NS = 1'000'000;
/** A copy holds its slot for one chunk at a time, so that the owner's unregister waits only milliseconds for a running peer. */
constexpr uint64_t CHUNK_BYTES = 8 << 20;
constexpr size_t GATHER_SLICES = 64;
constexpr size_t MAX_MAPPED = 16'384;
}  // namespace

std::shared_ptr<HostPeer> HostPeer::open(const HostIdentity& who, bool allowProcessVm, std::string& why) {
  if (who.bootID.empty() || who.bootID != hostBootID()) {
    why = "the peer runs on another host";
    return nullptr;
  }
  if (who.pidNamespace != pidNamespace()) {
    why = "the peer runs in another pid namespace";
    return nullptr;
  }
  std::shared_ptr<HostPeer> peer(new HostPeer());
  peer->who_ = who;
  peer->ownPid_ = uint64_t(getpid());
  peer->ownStartTime_ = processStartTime(peer->ownPid_);
  peer->pidfd_.reset(int(syscall(SYS_pidfd_open, pid_t(who.pid), 0)));
  if (!peer->pidfd_ || processStartTime(who.pid) != who.startTime) {
    why = "the peer's process " + std::to_string(who.pid) + " is gone";
    return nullptr;
  }
  Fd control(::open(who.controlPath.c_str(), O_RDWR | O_CLOEXEC));
  struct stat info{};
  if (!control || fstat(control.get(), &info) != 0 || uint64_t(info.st_ino) != who.controlInode || uint64_t(info.st_size) < sizeof(ControlLayout)) {
    why = "the peer's control page cannot be opened: " + (control ? std::string("it is another file") : errnoText());
    return nullptr;
  }
  void* base = mmap(nullptr, sizeof(ControlLayout), PROT_READ | PROT_WRITE, MAP_SHARED, control.get(), 0);
  if (base == MAP_FAILED) {
    why = "the peer's control page cannot be mapped: " + errnoText();
    return nullptr;
  }
  peer->page_ = static_cast<ControlLayout*>(base);
  if (toHex(peer->page_->nonce, NONCE_BYTES) != who.nonce) {
    why = "the peer's control page belongs to another start of it";
    return nullptr;
  }
  if (!allowProcessVm) peer->processVmRefusal_ = "switched off by the option process_vm";
  else if (!peer->probe()) peer->processVmRefusal_ = "reading the peer's memory: " + errnoText();
  else peer->processVm_ = true;
  return peer;
}

HostPeer::~HostPeer() {
  if (page_ != nullptr) munmap(page_, sizeof(ControlLayout));
  for (auto& [key, mapped] : mapped_) munmap(mapped.base, mapped.length);
}

bool HostPeer::probe() {
  char nonce[NONCE_BYTES];
  iovec here{nonce, sizeof nonce}, there{reinterpret_cast<void*>(who_.nonceAddress), sizeof nonce};
  if (process_vm_readv(pid_t(who_.pid), &here, 1, &there, 1, 0) != ssize_t(sizeof nonce)) return false;
  if (memcmp(nonce, page_->nonce, sizeof nonce) == 0) return true;
  errno = ESRCH;
  return false;
}

bool HostPeer::alive() {
  uint64_t now = nowNs();
  if (now < aliveUntilNs_.load(std::memory_order_relaxed)) return true;
  pollfd entry{pidfd_.get(), POLLIN, 0};
  // If the pid was reused by another program, the nonce is not at its address.
  if (poll(&entry, 1, 0) != 0 || (processVm_ && !probe())) return false;
  aliveUntilNs_.store(now + ALIVE_NS, std::memory_order_relaxed);
  return true;
}

ControlHold* HostPeer::begin(const PublishedBuffer& buffer) {
  static std::atomic<uint32_t> threads{0};
  static thread_local uint32_t place = threads.fetch_add(1, std::memory_order_relaxed);
  if (!buffer.slot || *buffer.slot >= CONTROL_SLOTS) return nullptr;
  const uint64_t word = holdWord(ownPid_, ownStartTime_, *buffer.slot);
  for (int round = 0; round < 2; round++) {
    for (size_t tried = 0; tried < CONTROL_HOLDS; tried++, place++) {
      ControlHold& hold = page_->holds[place % CONTROL_HOLDS];
      uint64_t free = 0;
      if (!hold.word.compare_exchange_strong(free, word, std::memory_order_seq_cst)) continue;
      // The hold is written before the check. The owner closes the slot first and looks for copies afterwards, so one of the two sees the
      // other.
      if (page_->slots[*buffer.slot].generation.load(std::memory_order_seq_cst) == buffer.generation) return &hold;
      end(&hold);
      return nullptr;
    }
    freeDeadHolds(*page_);
  }
  return nullptr;
}

char* HostPeer::map(const PublishedBuffer& buffer, std::string& why) {
  if (buffer.mapPath.empty() || !buffer.slot) {
    why = "the buffer is ordinary memory";
    return nullptr;
  }
  std::lock_guard lock(mutex_);
  // A peer that registers again and again must not make us map without limit; further buffers use process_vm.
  if (mapped_.size() >= MAX_MAPPED && mapped_.find({*buffer.slot, buffer.generation}) == mapped_.end()) {
    why = std::to_string(MAX_MAPPED) + " buffers of the peer are mapped already";
    return nullptr;
  }
  auto& mapped = mapped_[{*buffer.slot, buffer.generation}];
  if (mapped.base == nullptr) {
    auto refuse = [&](const std::string& reason) {
      why = "mapping the peer's buffer: " + reason;
      mapped_.erase({*buffer.slot, buffer.generation});
      return nullptr;
    };
    Fd fd(::open(buffer.mapPath.c_str(), O_RDWR | O_CLOEXEC));
    struct stat info{};
    if (!fd || fstat(fd.get(), &info) != 0) return refuse(errnoText());
    if (uint64_t(info.st_ino) != buffer.mapInode || !inside(0, uint64_t(info.st_size), buffer.mapOffset, buffer.length)) return refuse("it is another object, or shorter");
    uint64_t start = buffer.mapOffset & ~4095ull;
    mapped.skip = buffer.mapOffset - start;
    mapped.length = buffer.length + mapped.skip;
    void* base = mmap(nullptr, mapped.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), off_t(start));
    if (base == MAP_FAILED) return refuse(errnoText());
    mapped.base = static_cast<char*>(base);
  }
  return mapped.base + mapped.skip;
}

bool HostPeer::copyMapped(const Slice& slice, std::string& why) {
  char* there = map(*slice.buffer, why);
  if (there == nullptr) return false;
  there += slice.remote - slice.buffer->address;
  char* here = reinterpret_cast<char*>(slice.local);
  for (uint64_t at = 0; at < slice.length; at += CHUNK_BYTES) {
    uint64_t length = std::min(CHUNK_BYTES, slice.length - at);
    ControlHold* hold = begin(*slice.buffer);
    if (hold == nullptr) {
      why = "the peer has unregistered the buffer";
      return false;
    }
    if (slice.write) memcpy(there + at, here + at, length);
    else memcpy(here + at, there + at, length);
    end(hold);
    // The mapping outlives its process, and bytes written after its end reached no one.
    if (!alive()) {
      why = "the peer's process " + std::to_string(who_.pid) + " ended";
      return false;
    }
  }
  return true;
}

size_t HostPeer::copyByKernel(std::span<const Slice> slices, std::string& why) {
  size_t through = 0;
  uint64_t offset = 0;  // the bytes of slices[through] that earlier rounds moved
  while (through < slices.size()) {
    iovec here[GATHER_SLICES], there[GATHER_SLICES];
    ControlHold* holds[GATHER_SLICES];
    size_t count = 0, taken = 0;
    uint64_t bytes = 0;
    bool closed = false;
    for (size_t i = through; i < slices.size() && count < GATHER_SLICES && bytes < CHUNK_BYTES; i++, count++) {
      if (count == 0 || slices[i].buffer != slices[i - 1].buffer) {
        ControlHold* hold = begin(*slices[i].buffer);
        if (closed = hold == nullptr; closed) break;
        holds[taken++] = hold;
      }
      uint64_t skip = i == through ? offset : 0, length = std::min(slices[i].length - skip, CHUNK_BYTES - bytes);
      here[count] = {reinterpret_cast<void*>(slices[i].local + skip), length};
      there[count] = {reinterpret_cast<void*>(slices[i].remote + skip), length};
      bytes += length;
    }
    ssize_t n = 0;
    if (count > 0)
      n = slices[through].write ? process_vm_writev(pid_t(who_.pid), here, count, there, count, 0) : process_vm_readv(pid_t(who_.pid), here, count, there, count, 0);
    int error = errno;
    for (size_t i = 0; i < taken; i++) end(holds[i]);
    if (count > 0 && n <= 0) {
      why = "copying between processes: " + errnoText(n < 0 ? error : EFAULT);
      return through;
    }
    for (uint64_t moved = uint64_t(n); moved > 0;) {
      uint64_t left = slices[through].length - offset;
      if (moved < left) {
        offset += moved;
        break;
      }
      moved -= left;
      offset = 0;
      through++;
    }
    if (closed && uint64_t(n) == bytes) {
      why = "the peer has unregistered the buffer";
      return through;
    }
  }
  return through;
}

}  // namespace svc
