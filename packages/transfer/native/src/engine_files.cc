// File segments of an engine: run where they are mounted, asked of their owner elsewhere, and served to those who ask.
#include "engine.h"

namespace svc {

namespace {
bool mountedOn(const SegmentDescriptor& record, const std::string& machine) {
  if (record.serverName == machine) return true;
  for (const auto& file : record.files)
    if (file.localPaths.count(machine) == 0) return false;
  return true;
}
}  // namespace

std::shared_ptr<FileTransport> Engine::files() {
  std::lock_guard lock(transportMutex_);
  return file_ ? files_ : nullptr;
}

void Engine::viewFile(SegmentView& view, const std::string& segmentName) {
  if (!file_) {
    view.fileWhy = "transport nvmeof is not installed";
    return;
  }
  view.file = FileSegment::open(*view.record, name);
  if (view.file) return;
  view.fileWhy = lastError();
  // A mount that does not work is an error to see, not a reason to go another way.
  if (mountedOn(*view.record, name)) return;
  auto owner = fetch(view.record->serverName);
  if (!owner) view.tcpWhy = "its owner cannot be asked for " + segmentName + ": " + lastError();
  else if (!owner->servesFiles) view.tcpWhy = "the engine of its owner " + view.record->serverName + " serves no files: it needs the transports nvmeof and tcp";
  else view.owner = std::make_shared<const SegmentDescriptor>(std::move(*owner));
}

void Engine::runFile(Segment& segment, const ViewRef& view, std::vector<Piece>& pieces) {
  auto transport = view->file ? files() : nullptr;
  std::vector<FileRequest> requests;
  if (transport) {
    for (const auto& piece : pieces) requests.push_back({piece.wire.local, piece.wire.remote, piece.wire.length, piece.wire.write, {}});
    transport->run(*view->file, requests);
    for (size_t i = 0; i < pieces.size(); i++) {
      if (!requests[i].error.empty()) {
        failPiece(pieces[i].wire, Path::File, "segment " + segment.name + ": " + requests[i].error);
        continue;
      }
      account(Path::File, 1, pieces[i].wire.length);
      finishPiece(*pieces[i].wire.task, pieces[i].wire.length, nullptr);
    }
    pieces.clear();
    return;
  }
  uint64_t length = 0;
  for (const auto& file : view->record->files) length += file.length;
  std::erase_if(pieces, [&](const Piece& piece) {
    bool reachable = view->owner && inside(0, length, piece.wire.remote, piece.wire.length);
    if (!reachable) failPiece(piece.wire, Path::File, "segment " + segment.name + ": " + (view->owner ? endText(piece.wire.remote, piece.wire.length, length) : whyNot(*view)));
    return !reachable;
  });
}

FileService Engine::fileService() {
  return {[this](const std::string& wanted) -> std::shared_ptr<FileSegment> {
            if (!file_ || wanted.find('/') == std::string::npos) return nullptr;
            auto record = fetch(wanted);
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
          [this](uint64_t key, std::function<void()> work) { return pool.post(key, std::move(work)); }};
}

}  // namespace svc
