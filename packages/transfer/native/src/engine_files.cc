// File segments: whether this machine has one mounted, and those that this engine serves to peers.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine.h"
#include "tcp_file_session.h"

namespace svc {

bool mountedOn(const SegmentDescriptor& record, const std::string& machine) {
  if (record.folder) return bool(FileSegment::openFolder(*record.folder, false));
  if (record.serverName == machine) return true;
  for (const auto& file : record.files)
    if (file.localPaths.count(machine) == 0) return false;
  return true;
}

std::shared_ptr<FileTransport> Engine::files() const {
  std::lock_guard lock(listMutex_);
  return files_;
}

std::string Engine::serveFolder(const std::string& label, const std::string& path) {
  if (!mayServe("serveFolder", label)) return "";
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return setLastError("serveFolder " + path + ": " + errnoText()), "";
  if (!S_ISDIR(info.st_mode)) return setLastError("serveFolder " + path + ": not a folder"), "";
  SegmentDescriptor record;
  record.folder = {path, hostBootID(), uint64_t(info.st_dev), uint64_t(info.st_ino)};
  return serve(label, std::move(record));
}

std::string Engine::serveFile(const std::string& label, const std::string& path) {
  if (!mayServe("serveFile", label)) return "";
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct stat info {};
  if (!file || fstat(file.get(), &info) != 0) return setLastError("serveFile " + path + ": " + errnoText()), "";
  // lseek also gives the size of a block device, for which st_size is 0.
  const off_t end = S_ISREG(info.st_mode) || S_ISBLK(info.st_mode) ? lseek(file.get(), 0, SEEK_END) : 0;
  if (end <= 0) return setLastError("serveFile " + path + ": expected a file or block device of at least one byte"), "";
  SegmentDescriptor record;
  record.files.push_back({uint64_t(end), path, {}});
  return serve(label, std::move(record));
}

bool Engine::mayServe(const std::string& caller, const std::string& label) {
  if (!started_ || !find("nvmeof") || !find("tcp"))
    return setLastError(caller + ": it needs an engine that was initialized, and its transports nvmeof and tcp"), false;
  if (label.empty() || label.find('/') != std::string::npos) return setLastError(caller + ": the label is empty, or has a slash"), false;
  return true;
}

std::string Engine::serve(const std::string& label, SegmentDescriptor record) {
  std::string segment = "nvmeof/" + name + "/" + label;
  record.serverName = name;
  record.protocol = "nvmeof";
  std::lock_guard lock(folderMutex_);
  folders_[segment] = std::move(record);
  return segment;
}

int Engine::stopFolder(const std::string& label) {
  std::lock_guard lock(folderMutex_);
  if (folders_.erase("nvmeof/" + name + "/" + label) > 0) return 0;
  return failWith(ERR_INVALID_ARGUMENT, "stopFolder: " + label + " is not served");
}

std::optional<SegmentDescriptor> Engine::folderRecord(const std::string& segment) {
  std::lock_guard lock(folderMutex_);
  auto found = folders_.find(segment);
  if (found == folders_.end()) return std::nullopt;
  return found->second;
}

std::optional<SegmentDescriptor> Engine::fetchFolder(const std::string& segment, const std::string& owner, uint64_t answerMs) {
  if (owner == name) {
    auto own = folderRecord(segment);
    if (!own) setLastError("segment " + segment + ": this engine serves no such folder or file");
    return own;
  }
  // Only the owner knows the record, with or without a metadata service.
  auto peer = rpcAddressOf(owner);
  auto json = peer ? callPeer(*peer, wire::RPC_METADATA, Json(Json::Object{{"segment", segment}}), options.connectTimeoutMs, answerMs) : std::nullopt;
  std::string why;
  auto record = json ? SegmentDescriptor::read(*json, why) : std::nullopt;
  if (record && record->folder) return record;
  if (record && record->isFile() && !record->files.empty()) {
    // A peer's paths are valid only on its own host, whatever its record claims.
    record->serverName = owner;
    for (auto& file : record->files) file.localPaths.clear();
    return record;
  }
  if (json) setLastError("segment " + segment + ": " + owner + " serves no such folder or file");
  return std::nullopt;
}

FileService Engine::fileService() {
  return {[this](const std::string& wanted) -> std::shared_ptr<FileSegment> {
            if (!files() || wanted.find('/') == std::string::npos) return nullptr;
            auto record = fetch(wanted);
            if (record && record->folder) return folderOwner(wanted) == name ? FileSegment::openFolder(*record->folder, true) : nullptr;
            return record && record->isFile() ? FileSegment::open(*record, name) : nullptr;
          },
          [this](const FileSegment& segment, FileRequest& request) {
            auto transport = files();
            if (!transport) return false;
            std::vector<FileRequest> one{request};
            transport->run(segment, one);
            if (!one[0].error.empty()) logLine(LogLevel::Warning, "serving a file: " + one[0].error);
            return one[0].error.empty();
          },
          [this](uint64_t key, std::function<void()> work) { return pool.post(key, std::move(work)); },
          [this](uint64_t key, std::function<void()> work) { return fillPool.post(key, std::move(work)); }};
}

}  // namespace svc
