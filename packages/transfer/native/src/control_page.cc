// The owner's side of the control page: it allocates and releases slots, and identifies this process.
#include "control_page.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <fstream>
#include <sstream>

namespace svc {

namespace {
constexpr uint64_t SLOT_BITS = 13, START_BITS = 29;
constexpr uint64_t SLOT_MASK = (1 << SLOT_BITS) - 1, START_MASK = (1 << START_BITS) - 1;
/** A copy holds its slot for one chunk, about a millisecond, so a longer wait means that the process is not running. */
constexpr useconds_t LOOK_AGAIN_US = 100;

bool hasEnded(uint64_t word) {
  auto pid = pid_t(word >> (SLOT_BITS + START_BITS));
  Fd process(int(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return errno == ESRCH;
  // A pidfd is readable once every thread has ended, even before the process is reaped.
  pollfd entry{process.get(), POLLIN, 0};
  if (poll(&entry, 1, 0) != 0) return true;
  uint64_t start = processStartTime(uint64_t(pid));
  return start != 0 && (start & START_MASK) != (word >> SLOT_BITS & START_MASK);
}
}  // namespace

uint64_t holdWord(uint64_t pid, uint64_t startTime, uint64_t slot) { return pid << (SLOT_BITS + START_BITS) | (startTime & START_MASK) << SLOT_BITS | (slot + 1); }

void freeDeadHolds(ControlLayout& page) {
  for (auto& hold : page.holds)
    if (uint64_t word = hold.word.load(std::memory_order_seq_cst); word != 0 && hasEnded(word)) hold.word.compare_exchange_strong(word, 0);
}

ControlPage::ControlPage() : fd_(memfd_create("svc-control", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!fd_ || ftruncate(fd_.get(), sizeof(ControlLayout)) != 0) return;
  fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK);
  void* base = mmap(nullptr, sizeof(ControlLayout), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) return;
  auto* page = static_cast<ControlLayout*>(base);
  if (getrandom(page->nonce, NONCE_BYTES, 0) != ssize_t(NONCE_BYTES)) return;
  page_ = page;
  for (int i = int(CONTROL_SLOTS) - 1; i >= 0; i--) spare_.push_back(i);
}

ControlPage::~ControlPage() {
  if (page_ != nullptr) munmap(page_, sizeof(ControlLayout));
}

bool ControlPage::take(int& slot, uint64_t& generation) {
  std::lock_guard lock(mutex_);
  if (slot < 0) {
    if (page_ == nullptr || spare_.empty()) return false;
    slot = spare_.back();
    spare_.pop_back();
  }
  generation = page_->slots[slot].generation.fetch_add(1, std::memory_order_seq_cst) + 1;
  return true;
}

void ControlPage::close(int slot) {
  auto& generation = page_->slots[slot].generation;
  if (generation.load(std::memory_order_relaxed) % 2 == 1) generation.fetch_add(1, std::memory_order_seq_cst);
}

bool ControlPage::giveBack(int slot, uint64_t deadlineNs, std::string& who) {
  auto holder = [&]() -> uint64_t {
    for (auto& hold : page_->holds)
      if (uint64_t word = hold.word.load(std::memory_order_seq_cst); (word & SLOT_MASK) == uint64_t(slot + 1)) return word;
    return 0;
  };
  for (uint64_t word = holder(); word != 0; word = holder()) {
    freeDeadHolds(*page_);
    if (nowNs() >= deadlineNs && (word = holder()) != 0) {
      who = "process " + std::to_string(word >> (SLOT_BITS + START_BITS));
      return false;
    }
    usleep(LOOK_AGAIN_US);
  }
  std::lock_guard lock(mutex_);
  spare_.push_back(slot);
  return true;
}

HostIdentity ControlPage::identity() const {
  HostIdentity who;
  struct stat info{};
  fstat(fd_.get(), &info);
  who.bootID = hostBootID();
  who.pidNamespace = pidNamespace();
  who.pid = uint64_t(getpid());
  who.startTime = processStartTime(who.pid);
  who.controlPath = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_.get());
  who.controlInode = uint64_t(info.st_ino);
  who.nonceAddress = reinterpret_cast<uint64_t>(page_->nonce);
  who.nonce = toHex(page_->nonce, NONCE_BYTES);
  return who;
}

std::string hostBootID() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

uint64_t pidNamespace() {
  struct stat info{};
  return stat("/proc/self/ns/pid", &info) == 0 ? uint64_t(info.st_ino) : 0;
}

uint64_t processStartTime(uint64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return 0;
  // The process name may contain spaces and brackets; field 3 follows the last bracket.
  size_t close = line.rfind(')');
  if (close == std::string::npos) return 0;
  std::istringstream rest(line.substr(close + 2));
  std::string field;
  for (int i = 3; i < 22; i++) rest >> field;
  uint64_t start = 0;
  rest >> start;
  return start;
}

}  // namespace svc
