// Folders as file segments: files by number, opened on access; peers may open only folders whose file system cannot block on a process or
// network.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include "control_page.h"
#include "file_transport.h"
#include "mounts.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {
/** Returns true for file systems that the kernel alone serves. Others may block on a process or a network, so only the threads of a folder's owner use them. */
bool answersByItself(int fd) {
  constexpr int64_t EXT = 0xEF53, XFS = 0x58465342, BTRFS = 0x9123683E, TMPFS = 0x01021994, OVERLAY = 0x794C7630, F2FS = 0xF2F52010, ZFS = 0x2FC12FC1;
  struct statfs info {};
  if (fstatfs(fd, &info) != 0) return false;
  for (int64_t known : {EXT, XFS, BTRFS, TMPFS, OVERLAY, F2FS, ZFS})
    if (int64_t(info.f_type) == known) return true;
  return false;
}

/** The socket through which a folder's owner receives requests for missing files. */
constexpr char SOURCE[] = "source";
constexpr time_t BRING_S = 10;

bool hasSource(int folder) {
  struct stat info {};
  return fstatat(folder, SOURCE, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode);
}

/** Requests the file from the owner: sends eight bytes with its number and expects '1' once the file exists. */
bool bring(int folder, uint64_t number) {
  Fd to(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval bound{BRING_S, 0};
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  // The folder's own path may exceed the length of a socket address.
  snprintf(at.sun_path, sizeof at.sun_path, "/proc/self/fd/%d/%s", folder, SOURCE);
  char answer = 0;
  return to && setsockopt(to.get(), SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof bound) == 0 && setsockopt(to.get(), SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof bound) == 0 &&
         connect(to.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 && send(to.get(), &number, sizeof number, MSG_NOSIGNAL) == sizeof number &&
         recv(to.get(), &answer, 1, 0) == 1 && answer == '1';
}
}  // namespace

std::shared_ptr<FileSegment> FileSegment::openFolder(const PublishedFolder& folder, bool isOwner) {
  if (!isOwner && folder.bootID != hostBootID()) {
    setLastError("folder " + folder.path + " is on another host");
    return nullptr;
  }
  // Even opening the folder may block on a process or network.
  if (!isOwner && !kernelAnswersFor(folder.path, folder.device)) {
    setLastError("folder " + folder.path + " is on a file system that may stop answering");
    return nullptr;
  }
  auto segment = std::make_shared<FileSegment>();
  segment->folder_.reset(::open(folder.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!segment->folder_ || fstat(segment->folder_.get(), &info) != 0) {
    setLastError("folder " + folder.path + ": " + errnoText());
    return nullptr;
  }
  // Another mount namespace may have a different folder at the same path.
  if (uint64_t(info.st_dev) != folder.device || uint64_t(info.st_ino) != folder.inode) {
    setLastError("folder " + folder.path + " is another one here");
    return nullptr;
  }
  if (!isOwner && !answersByItself(segment->folder_.get())) {
    setLastError("folder " + folder.path + " is on a file system that may stop answering");
    return nullptr;
  }
  segment->filled_ = hasSource(segment->folder_.get());
  if (!isOwner && segment->filled_) {
    setLastError("folder " + folder.path + " is filled by its owner when it is read");
    return nullptr;
  }
  segment->folderPath_ = folder.path;
  return segment;
}

std::unique_ptr<FileSegment::Part> FileSegment::fileAt(uint64_t offset, bool direct, std::string& why) const {
  const uint64_t number = offset >> FOLDER_FILE_SHIFT;
  char name[24];
  snprintf(name, sizeof name, "%08llx", static_cast<unsigned long long>(number));
  auto part = std::make_unique<Part>();
  part->path = folderPath_ + "/" + name;
  part->start = number << FOLDER_FILE_SHIFT;
  part->buffered.reset(openat(folder_.get(), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!part->buffered && errno == ENOENT && filled_) {
    if (!bring(folder_.get(), number)) {
      why = part->path + ": its owner did not bring it";
      return nullptr;
    }
    part->buffered.reset(openat(folder_.get(), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  }
  struct stat info {};
  if (!part->buffered || fstat(part->buffered.get(), &info) != 0) {
    why = part->path + ": " + errnoText();
    return nullptr;
  }
  part->length = uint64_t(info.st_size);
  if (direct) part->direct.reset(openat(folder_.get(), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT));
  return part;
}

}  // namespace svc
