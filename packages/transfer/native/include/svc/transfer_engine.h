// The public C++20 interface of the transfer engine, which moves bytes between registered memory of processes, machines and files.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace svc {

using BatchID = uint64_t;
using SegmentID = uint64_t;
using SegmentHandle = SegmentID;
inline constexpr BatchID INVALID_BATCH_ID = ~0ull;
inline constexpr SegmentHandle INVALID_SEGMENT_ID = ~0ull;
/** The engine's own RAM segment. */
inline constexpr SegmentID LOCAL_SEGMENT_ID = 0;

/** Negative results of the calls that return int; a Status has the same code with a positive sign. */
enum ErrorCode : int {
  ERR_INVALID_ARGUMENT = -1,
  ERR_TOO_MANY_REQUESTS = -2,
  ERR_ADDRESS_NOT_REGISTERED = -3,
  ERR_BATCH_BUSY = -4,
  ERR_DEVICE_NOT_FOUND = -6,
  ERR_ADDRESS_OVERLAPPED = -7,
  ERR_NOT_SUPPORTED_TRANSPORT = -8,
  ERR_DNS = -101,
  ERR_SOCKET = -102,
  ERR_MALFORMED_JSON = -103,
  ERR_REJECT_HANDSHAKE = -104,
  ERR_METADATA = -200,
  ERR_ENDPOINT = -201,
  ERR_CONTEXT = -202,
  ERR_NUMA = -300,
  ERR_CLOCK = -301,
  ERR_MEMORY = -302,
};

/** The message of the last negative result, false or invalid handle that this thread received. */
const std::string& lastError();

class Status {
 public:
  Status() = default;
  Status(int code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status OK() { return {}; }
  bool ok() const { return code_ == 0; }
  /** 0, or an ErrorCode with a positive sign. */
  int code() const { return code_; }
  const std::string& message() const { return message_; }
  /** `Name: message`. */
  std::string ToString() const;

 private:
  int code_ = 0;
  std::string message_;
};

struct TransferRequest {
  enum OpCode { READ = 0, WRITE = 1 };
  OpCode opcode;
  void* source;  // in a buffer registered with this engine
  SegmentID target_id;
  uint64_t target_offset;  // RAM: virtual address at the target; file: offset in the segment
  size_t length;
  int advise_retry_cnt = 0;  // additional attempts after a broken connection
};

/** PENDING, CANCELED and TIMEOUT are never reported. */
enum TransferStatusEnum { WAITING = 0, PENDING = 1, INVALID = 2, CANCELED = 3, COMPLETED = 4, TIMEOUT = 5, FAILED = 6 };

struct TransferStatus {
  TransferStatusEnum s = WAITING;
  size_t transferred_bytes = 0;  // a lower bound
};

struct BufferEntry {
  void* addr;
  size_t length;
};

/** A short message between engines; name and message together have at most 1 MiB. */
struct NotifyDesc {
  std::string name;
  std::string msg;
};

/** One installed transport, for inspection. */
class Transport {
 public:
  virtual ~Transport() = default;
  virtual const char* name() const = 0;
  /** Active contexts: network devices for rdma, 1 for the others. */
  virtual int contexts() const { return 1; }
};

/** Devices near each memory location: location -> {preferred, others}. */
struct Topology {
  std::map<std::string, std::pair<std::vector<std::string>, std::vector<std::string>>> matrix;
  std::string toJson() const;
};

class Engine;

/** The engine's view of published records. It is valid while the engine lives. */
class TransferMetadata {
 public:
  /** The published record of a segment, as JSON; empty if there is none. */
  std::string segmentDescriptor(const std::string& segment_name);
  /** The key of a segment's record in the metadata service. */
  std::string segmentKey(const std::string& segment_name) const;
  std::string rpcKey(const std::string& server_name) const;

 private:
  friend class TransferEngine;
  explicit TransferMetadata(Engine& engine) : engine_(engine) {}
  Engine& engine_;
};

/**
 * The engine. Results of type int are 0 or a negative ErrorCode, and lastError() has the message. Lengths are bytes, times milliseconds.
 * All calls are thread-safe, except that a batch belongs to one caller, and that no other call may run concurrently with init.
 */
class TransferEngine {
 public:
  /** Performs no I/O. With `auto_discover`, init installs the transports that this host has: shm, rdma if there is a device, and tcp. */
  explicit TransferEngine(bool auto_discover = false);
  /** `filter` names the network devices that may be used; an empty list allows all. */
  TransferEngine(bool auto_discover, const std::vector<std::string>& filter);
  /** Calls freeEngine() and logs its failure. */
  ~TransferEngine();
  TransferEngine(TransferEngine&&) noexcept;
  TransferEngine& operator=(TransferEngine&&) noexcept;

  /** Sets an option before init; docs/transfer-engine.md lists them. ERR_INVALID_ARGUMENT for an unknown name or a value out of range. */
  int setOption(std::string_view name, std::string_view value);

  /**
   * Opens the ports and publishes the engine. Every other operation requires it.
   * `metadata_conn_string`: P2PHANDSHAKE, [etcd://]host:port, redis://host:port or http://host:port/path.
   * `local_server_name`: unique in the cluster; with P2PHANDSHAKE the host to listen on, and the name becomes host:port.
   * `rpc_port` 0 takes a free one. ERR_INVALID_ARGUMENT (an engine with this name is running, empty name), ERR_SOCKET (port in use),
   * ERR_METADATA.
   */
  int init(const std::string& metadata_conn_string, const std::string& local_server_name, const std::string& ip_or_host_name = "", uint64_t rpc_port = 0);
  /**
   * Fails the transfers in flight, stops serving, and deletes this engine's metadata entries. The engine cannot be used afterwards.
   * ERR_BATCH_BUSY while a stopped process of this host is in the middle of a copy to or from registered memory: keep that memory, and call
   * again.
   */
  int freeEngine();

  /**
   * Installs "tcp", "shm", "rdma" or "nvmeof"; args[0] may be a priority matrix as JSON text. Returns nullptr if this host does not support
   * it; no other transport replaces it.
   */
  Transport* installTransport(const std::string& proto, void** args = nullptr);
  /** Closes the transport's connections and publishes the engine without it. ERR_INVALID_ARGUMENT if it is not installed. */
  int uninstallTransport(const std::string& proto);
  /** Returns nullptr if it is not installed. */
  Transport* getTransport(const std::string& proto);

  /**
   * Registers [addr, addr + length) for transfers: as the source of this engine's requests, and for peers if `remote_accessible`.
   * `location`: "*", or "<device>:<index>" such as cpu:0. With `update_metadata` false the record never names the buffer, and only peers
   * that were given its address reach it. ERR_INVALID_ARGUMENT (length 0), ERR_ADDRESS_OVERLAPPED, ERR_CONTEXT (a device refuses it),
   * ERR_METADATA; on an error nothing is registered.
   */
  int registerLocalMemory(void* addr, size_t length, const std::string& location = "*", bool remote_accessible = true, bool update_metadata = true);
  /**
   * Returns 0 once no byte of a peer or of this engine can enter or leave the buffer. `addr` is the buffer's start. With `update_metadata`
   * false the record names the buffer until it is published next. ERR_ADDRESS_NOT_REGISTERED. ERR_BATCH_BUSY while requests in flight use
   * the buffer, which then stays registered; or if, after a second, a process of this host is stopped in the middle of a copy: the buffer
   * is then closed to new requests, and the call succeeds once that process continues or ends.
   */
  int unregisterLocalMemory(void* addr, bool update_metadata = true);
  /** Registers all buffers or none, and publishes once. Errors as above. */
  int registerLocalMemoryBatch(const std::vector<BufferEntry>& buffer_list, const std::string& location);
  /** Tries every address, publishes once, and returns the first error. */
  int unregisterLocalMemoryBatch(const std::vector<void*>& addr_list);
  /** Returns whether the range shares a byte with registered memory. */
  bool checkOverlap(void* addr, uint64_t length);

  /**
   * Opens a peer's server name, or "nvmeof/<file segment>". There is one reference-counted handle per name. INVALID_SEGMENT_ID if there is
   * no record or its peer does not answer.
   */
  SegmentHandle openSegment(const std::string& segment_name);
  /** The last close drops the connections and fails their transfers in flight. ERR_INVALID_ARGUMENT if the segment is not open. */
  int closeSegment(SegmentHandle segment_id);
  /**
   * Forgets a peer's cached record. For this engine's own name it deletes the published segment record, until a registration publishes it
   * again. ERR_METADATA.
   */
  int removeLocalSegment(const std::string& segment_name);
  /**
   * Serves a folder of this host as a segment that peers can read: file N, named by eight hexadecimal digits, begins at N << 35. Returns
   * the segment's name, or an empty text with lastError().
   * If the folder contains a socket `source`, a missing file is requested there: the engine sends its number in eight bytes and expects '1'
   * within 10 s, once the file exists.
   */
  std::string serveFolder(const std::string& label, const std::string& path);
  /**
   * Serves a file or block device of this host, with its present length, as the segment `nvmeof/SERVER/LABEL`, which peers can read and
   * write.
   */
  std::string serveFile(const std::string& label, const std::string& path);
  int stopFolder(const std::string& label);
  /** Reads the segment's record again. OK if the peer answers, the record is valid and a path serves it. */
  Status CheckSegmentStatus(SegmentID sid);
  /** Reads the record of one open segment, or of all, again. ERR_INVALID_ARGUMENT (not open), ERR_METADATA. */
  int syncSegmentCache(const std::string& segment_name = "");

  /**
   * Allocates a batch of at most `batch_size` requests, 1 to 4,194,304. INVALID_BATCH_ID for larger sizes, or if 65,536 batches are
   * allocated.
   */
  BatchID allocateBatchID(size_t batch_size);
  /**
   * Starts all entries. If the status is not OK, it has started none: 1 InvalidArgument, 2 TooManyRequests, 3 AddressNotRegistered, 8
   * NotSupportedTransport.
   */
  Status submitTransfer(BatchID batch_id, const std::vector<TransferRequest>& entries);
  /**
   * Like submitTransfer. The engine that serves the first entry's target receives the message once all requests have completed, but not if
   * one failed.
   */
  Status submitTransferWithNotify(BatchID batch_id, const std::vector<TransferRequest>& entries, NotifyDesc notify_msg);
  /** `task_id` counts the batch's requests from 0. COMPLETED means that every byte is at its destination. */
  Status getTransferStatus(BatchID batch_id, size_t task_id, TransferStatus& status);
  /** COMPLETED if all requests are, FAILED as soon as one is. The bytes are those of completed requests. */
  Status getBatchTransferStatus(BatchID batch_id, TransferStatus& status);
  /** 4 BatchBusy while a request is in flight, whether or not its status was queried. */
  Status freeBatchID(BatchID batch_id);
  /** The reason why a task FAILED: peer, range and cause. Empty otherwise. */
  std::string getTransferError(BatchID batch_id, size_t task_id);

  /** Waits until no request of the batch is in flight. Returns false after timeout_ms, or for a handle that is not allocated. */
  bool waitBatch(BatchID batch_id, uint64_t timeout_ms);
  /**
   * Submits and waits in the calling thread, which drives the sockets itself. timeout_ms 0 means the engine's default. 102 Socket if a
   * request failed.
   */
  Status transferSync(const std::vector<TransferRequest>& entries, uint64_t timeout_ms = 0);
  /**
   * Submits and returns. `done` runs once, on a thread of the engine or within this call, and must not block. With `lingers` the call polls
   * for the answer to a single short request for up to poll_us, which saves two thread wake-ups if the peer is near; use it to submit
   * requests one after another.
   */
  void transferAsync(const std::vector<TransferRequest>& entries, std::function<void(Status)> done, uint64_t timeout_ms = 0, bool lingers = false);

  /** Replaces `notifies` by the messages that arrived since the last call, in order. */
  int getNotifies(std::vector<NotifyDesc>& notifies);
  /** ERR_METADATA (no open segment, no record), ERR_SOCKET (no answer), ERR_REJECT_HANDSHAKE (the peer holds too many already). */
  int sendNotifyByID(SegmentID target_id, NotifyDesc notify_msg);
  /** Sends to an engine whose segment need not be open. Errors as above. */
  int sendNotifyByName(const std::string& remote_agent, NotifyDesc notify_msg);
  /** Returns 0 if the peer of an open segment answers. ERR_INVALID_ARGUMENT, ERR_METADATA, ERR_SOCKET. */
  int probePeerAliveByID(SegmentID target_id);

  std::shared_ptr<TransferMetadata> getMetadata();
  /** Must be called before init. */
  void setAutoDiscover(bool auto_discover);
  /** Sets the network devices that may be used; must be called before init. */
  void setWhitelistFilters(std::vector<std::string>&& filters);
  /** The number of active contexts: one per transport, for rdma one per device. */
  int numContexts() const;
  /** Discovers the topology at each call. */
  std::shared_ptr<Topology> getLocalTopology();
  /** host:port of the handshake port; empty before init. */
  std::string getLocalIpAndPort();
  /** ERR_INVALID_ARGUMENT before init. */
  int getRpcPort();
  /** The engine's name: as given, or host:port if a handshake replaces the metadata service. */
  std::string getServerName();
  /** The path that a request to this range takes (local, shm, process_vm, rdma, tcp or file), and why earlier ones were skipped. */
  std::string explainPath(SegmentID target_id, uint64_t target_offset, size_t length);
  /** The metrics in Prometheus' text format. */
  std::string metrics() const;

 private:
  std::unique_ptr<Engine> engine_;
};

/** Allocates zeroed memory that peers on this host can map instead of copying through a socket. nullptr if there is not enough memory. */
void* allocateShared(size_t size_bytes);
/** Opens a named shared memory object of this host, and creates it if `create`. nullptr with lastError() on failure. */
void* openShared(const std::string& name, size_t size_bytes, bool create);
/** Unmaps memory that the two functions above returned. Returns 0, or -1 for any other address. */
int freeShared(void* addr);
/** Removes the name of a shared memory object. */
int unlinkShared(const std::string& name);

}  // namespace svc
