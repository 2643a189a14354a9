// A segment's published record: ours, those of unmodified engines, and those of the specification are all read.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "json.h"

namespace svc {

struct PublishedDevice {
  std::string name;
  uint64_t lid = 0;
  std::string gid;
};

struct PublishedBuffer {
  std::string location;
  uint64_t address = 0;
  uint64_t length = 0;
  std::vector<uint64_t> remoteKeys;
  // Own engines on the same host: the slot to check, and where the memory can be mapped from.
  std::optional<uint64_t> slot;
  uint64_t generation = 0;
  std::string mapPath;
  uint64_t mapOffset = 0, mapInode = 0;
};

struct PublishedFile {
  uint64_t length = 0;
  std::string path;
  std::map<std::string, std::string> localPaths;
};

/** The offsets of a folder's segment. */
inline constexpr uint64_t FOLDER_BYTES = uint64_t{1} << 63;
/** Of `nvmeof/SERVER/LABEL`, SERVER; empty for another name. */
std::string folderOwner(const std::string& segment);

/** A folder of files that its engine serves, each at its number in the upper bits of an offset. */
struct PublishedFolder {
  std::string path, bootID;
  uint64_t device = 0, inode = 0;
};

/** Who the process is, for peers on the same host. */
struct HostIdentity {
  std::string bootID;
  uint64_t pidNamespace = 0, pid = 0, startTime = 0;
  /** A page of this layout; engines of another one meet over the network. */
  std::string controlPath;
  uint64_t controlInode = 0;
  /** Where in the process its nonce lies: reading it proves that this pid is that process. */
  uint64_t nonceAddress = 0;
  std::string nonce;
};

struct SegmentDescriptor {
  std::string serverName;
  std::string protocol;
  std::string tcpHost;
  uint16_t tcpPort = 0;
  uint64_t tcpVersion = 1;
  /** Its data port serves file segments, too. */
  bool servesFiles = false;
  std::string timestamp;
  /** Changes with each start of the engine; empty for other makers' engines. */
  std::string instance;
  std::vector<PublishedDevice> devices;
  Json priorityMatrix = Json::object();
  std::vector<PublishedBuffer> buffers;
  std::vector<PublishedFile> files;
  std::optional<PublishedFolder> folder;
  std::optional<HostIdentity> host;

  bool isFile() const { return protocol == "nvmeof"; }
  /** The published buffer that holds the whole range. */
  const PublishedBuffer* holding(uint64_t address, uint64_t length) const;
  /** Of a file segment: its files laid end to end; of a folder, all offsets that may lie in one. */
  uint64_t fileBytes() const;
  Json toJson() const;
  /** Nothing when a member that must be there is missing or of another kind; `error` says which. */
  static std::optional<SegmentDescriptor> read(const Json& json, std::string& error);
  /** After the buffers changed: keeps holding() a binary search. */
  void sortBuffers();
};

/** What is said of a range beyond the end of a segment. */
std::string endText(uint64_t offset, uint64_t length, uint64_t segmentLength);

}  // namespace svc
