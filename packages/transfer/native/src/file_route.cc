// Runs slices of a file segment that is mounted here, on the calling thread.
#include "file_transport.h"

namespace svc {

RouteRef FileTransport::route(const RouteRequest& to, std::string& why) {
  if (!to.record.isFile()) return nullptr;
  auto files = to.record.folder ? FileSegment::openFolder(*to.record.folder, false) : FileSegment::open(to.record, engineName_);
  if (!files) return why = lastError(), nullptr;
  return std::make_shared<FileRoute>(std::static_pointer_cast<FileTransport>(shared_from_this()), to.segmentName, std::move(files));
}

FileRoute::FileRoute(std::shared_ptr<FileTransport> made, const std::string& name, std::shared_ptr<FileSegment> files) : Route(made, name), transport_(*made), files_(std::move(files)) {}

Unfinished FileRoute::take(std::vector<Slice>& slices, Drive, uint64_t) {
  std::vector<FileRequest> requests;
  for (const auto& slice : slices) requests.push_back({slice.local, slice.remote, slice.length, slice.write, {}});
  transport_.run(*files_, requests);
  for (size_t i = 0; i < slices.size(); i++) {
    if (requests[i].error.empty()) completeSlice(transport_.metrics_, Path::File, slices[i]);
    else failSlice(transport_.metrics_, Path::File, slices[i], "segment " + segmentName + ": " + requests[i].error);
  }
  slices.clear();
  return {};
}

std::string FileRoute::explain(const PublishedBuffer*, std::string&) { return "file: " + files_->shownPath(); }

}  // namespace svc
