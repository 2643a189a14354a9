// The owner's side of the page: slots taken and given back, and who this process is.
#include "control_page.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

namespace svc {

namespace {
/** A peer that was killed in mid-copy never counts down. */
constexpr uint64_t REVOKE_WAIT_MS = 1000;
}  // namespace

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
  if (page_ == nullptr || spare_.empty()) return false;
  slot = spare_.back();
  spare_.pop_back();
  generation = page_->slots[slot].generation.fetch_add(1, std::memory_order_seq_cst) + 1;
  return true;
}

void ControlPage::giveBack(int slot) {
  ControlSlot& entry = page_->slots[slot];
  entry.generation.fetch_add(1, std::memory_order_seq_cst);
  uint64_t deadline = nowMs() + REVOKE_WAIT_MS;
  while (entry.users.load(std::memory_order_seq_cst) != 0) {
    // The slot stays out of use: its count can no longer be trusted.
    if (nowMs() > deadline) return logLine(LogLevel::Warning, "a peer on this host did not finish a copy; its slot is given up");
    usleep(100);
  }
  std::lock_guard lock(mutex_);
  spare_.push_back(slot);
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
  // The name may hold spaces and brackets; what follows the last bracket is field 3.
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
