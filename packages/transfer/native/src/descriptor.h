// A segment's published record. We read our own format, that of Mooncake's engines, and that of the specification.
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
  // Our own engines on the same host use these: the slot to check, and the file from which to map the memory.
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

/** The size of a folder segment's address space. */
inline constexpr uint64_t FOLDER_BYTES = uint64_t{1} << 63;
/** Returns SERVER of `nvmeof/SERVER/LABEL`; empty for any other name. */
std::string folderOwner(const std::string& segment);

/** A folder of files that its engine serves; the upper bits of an offset are the file's number. */
struct PublishedFolder {
  std::string path, bootID;
  uint64_t device = 0, inode = 0;
};

/** Identifies the process for peers on the same host. */
struct HostIdentity {
  std::string bootID;
  uint64_t pidNamespace = 0, pid = 0, startTime = 0;
  /** The path encodes the page's layout; engines with another layout use the network. */
  std::string controlPath;
  uint64_t controlInode = 0;
  /** The address of its nonce in the process: reading the nonce there proves that this pid is that process. */
  uint64_t nonceAddress = 0;
  std::string nonce;
};

struct SegmentDescriptor {
  std::string serverName;
  std::string protocol;
  std::string tcpHost;
  uint16_t tcpPort = 0;
  uint64_t tcpVersion = 1;
  /** True if its data port also serves file segments. */
  bool servesFiles = false;
  std::string timestamp;
  /** Changes with each start of the engine; empty for engines of other makers. */
  std::string instance;
  std::vector<PublishedDevice> devices;
  Json priorityMatrix = Json::object();
  std::vector<PublishedBuffer> buffers;
  std::vector<PublishedFile> files;
  std::optional<PublishedFolder> folder;
  std::optional<HostIdentity> host;

  bool isFile() const { return protocol == "nvmeof"; }
  /** Returns the published buffer that contains the whole range. */
  const PublishedBuffer* holding(uint64_t address, uint64_t length) const;
  /** For a file segment, the total length of its files; for a folder, the size of its address space. */
  uint64_t fileBytes() const;
  Json toJson() const;
  /** Returns nothing if a required member is missing or has the wrong type; `error` names it. */
  static std::optional<SegmentDescriptor> read(const Json& json, std::string& error);
  /** Must be called after the buffers change: holding() is a binary search. */
  void sortBuffers();
};

/** The error text of a range beyond the end of a segment. */
std::string endText(uint64_t offset, uint64_t length, uint64_t segmentLength);

}  // namespace svc
