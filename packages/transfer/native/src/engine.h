// The engine behind the public class: what it owns, and which file does what with it.
#pragma once
#include <condition_variable>
#include <list>
#include <map>
#include <set>
#include <thread>
#include <unordered_map>

#include "batch.h"
#include "control_page.h"
#include "file_transport.h"
#include "metadata_store.h"
#include "rdma_transport.h"
#include "rpc.h"
#include "same_host.h"
#include "tcp_client.h"
#include "tcp_server.h"
#include "work_pool.h"

namespace svc {

/** A segment as it was when its record was read last; replaced as a whole, never changed. */
struct SegmentView {
  std::shared_ptr<const SegmentDescriptor> record;
  std::shared_ptr<TcpPeer> tcp;
  std::shared_ptr<HostPeer> host;
  std::shared_ptr<RdmaPeer> rdma;
  std::shared_ptr<RdmaTransport> rdmaTransport;
  std::shared_ptr<FileSegment> file;
  /** Of a file segment that is not mounted here: its owner's engine, which serves it over `tcp`. */
  std::shared_ptr<const SegmentDescriptor> owner;
  std::string tcpWhy, hostWhy, rdmaWhy, fileWhy;
};
using ViewRef = std::shared_ptr<const SegmentView>;
/** Both views are of one start of the same engine, and of the same files. */
bool sameEngine(const SegmentView& one, const SegmentView& other);
/** Why no path of the view serves, in one line. */
std::string whyNot(const SegmentView& view);

struct Segment : std::enable_shared_from_this<Segment> {
  SegmentID id = 0;
  std::string name;
  std::timed_mutex refreshMutex;  // one fetch at a time
  std::mutex mutex;
  ViewRef view;
  uint64_t fetchedAtMs = 0;
  uint32_t references = 1;
  std::atomic<bool> rereading{false};
  ViewRef current() {
    std::lock_guard lock(mutex);
    return view;
  }
};
using SegmentRef = std::shared_ptr<Segment>;

/** A request that was taken in and has not found its path yet. */
struct Piece {
  Segment* segment = nullptr;  // null: this engine's own
  const PublishedBuffer* buffer = nullptr;
  TcpPiece wire;
};

/** Requests that wait for a thread or a record before they go on. */
struct WaitingPieces {
  std::mutex mutex;
  std::vector<Piece> pieces;
  std::vector<SegmentRef> segments;  // kept while somebody may name them
  Path path = Path::Tcp;
  std::string trouble;
  std::vector<Piece> take() {
    std::lock_guard lock(mutex);
    return std::move(pieces);
  }
};

struct NamedTransport : Transport {
  NamedTransport(std::string name, int contexts) : name_(std::move(name)), contexts_(contexts) {}
  const char* name() const override { return name_.c_str(); }
  int contexts() const override { return contexts_; }
  std::string name_;
  int contexts_;
};

class Engine {
 public:
  /** A peer's handshake port answers within this, or not at all. */
  static constexpr uint64_t RPC_MS = 5000;

  Engine(bool autoDiscover, std::vector<std::string> filters);
  ~Engine() { stop(); }

  // engine_start.cc
  int init(const std::string& connection, const std::string& name, const std::string& host, uint64_t rpcPort);
  int stop();
  Transport* install(const std::string& proto, const std::string& matrix);
  int uninstall(const std::string& proto);
  Transport* transport(const std::string& proto);
  int contexts() const;
  std::shared_ptr<Topology> topology();
  std::string localAddress() const { return started_ ? joinHostPort(host_, rpcPort_) : ""; }

  // engine_name.cc
  /** 0, or an error when another engine that runs has the name. */
  int claimName();
  /** False, and logged, when the record of the name is another engine's. */
  bool hasName();
  /** Deletes a record unless it is another engine's. */
  bool removeOwn(const std::string& key);
  bool isOwn(const std::string& record) const;
  std::string rpcRecord() const;

  // engine_memory.cc
  int registerMemory(const std::vector<BufferEntry>& list, const std::string& location, bool remote, bool publish);
  int unregisterMemory(const std::vector<uint64_t>& addresses, bool publish);
  int publish();

  // engine_segments.cc
  SegmentHandle open(std::string name);
  int close(SegmentID id);
  int forget(std::string name);
  Status check(SegmentID id);
  int sync(const std::string& name);
  SegmentRef segment(SegmentID id);
  /** The record anew, unless it was read less than `maxAgeMs` ago; false with lastError(). Returns by the deadline, if one is given. */
  bool refresh(Segment& segment, uint64_t maxAgeMs, uint64_t answerMs = RPC_MS, uint64_t deadlineNs = 0);
  std::optional<SegmentDescriptor> fetch(const std::string& name, uint64_t answerMs = RPC_MS);
  std::optional<Address> rpcAddressOf(const std::string& name);
  std::string segmentKey(const std::string& name) const;
  std::string rpcKey(const std::string& name) const;
  std::string explain(SegmentID id, uint64_t offset, uint64_t length);

  // engine_submit.cc
  enum class Drive { Caller, Engine };
  Status submit(Batch& batch, const std::vector<TransferRequest>& entries, Drive drive, uint64_t timeoutMs, std::function<void(Batch&)> whenDone);
  Status transferSync(const std::vector<TransferRequest>& entries, uint64_t timeoutMs);
  void transferAsync(const std::vector<TransferRequest>& entries, std::function<void(Status)> done, uint64_t timeoutMs);

  // engine_recover.cc
  /** Fails what is past its deadline; `path` is the one that it was on. */
  void failLate(std::vector<Piece>& pieces, Path path, const std::string& trouble);
  /** A lane broke: what is late fails here and now, the rest is recovered on another thread. */
  void broke(const SegmentRef& segment, const std::shared_ptr<TcpPeer>& peer, Leftover left);
  /** Reads the record again where something is left, by the deadline; ends what cannot go on, and returns what should be tried again. */
  std::vector<Piece> judge(Segment& segment, const TcpPeer& peer, const Leftover& left, const std::shared_ptr<WaitingPieces>& waiting, uint64_t deadlineNs);
  void recover(const SegmentRef& segment, const std::shared_ptr<TcpPeer>& peer, const Leftover& left, const std::shared_ptr<WaitingPieces>& waiting);
  /** Until they are taken, the clock goes on for them: tick() fails those whose deadline passes. */
  std::shared_ptr<WaitingPieces> waitWith(std::vector<Piece> pieces, Path path, std::string trouble, std::vector<SegmentRef> segments);
  void expireWaiting();
  void failPiece(const TcpPiece& piece, Path path, const std::string& error);
  /** A request over rdma is through, or its device gave it up: then tcp, else the peer's next start, else it fails. */
  void endRdma(SegmentID id, const ViewRef& view, const TcpPiece& piece, const std::string* error);
  void recoverRdma(const SegmentRef& segment, const ViewRef& before);
  /** Asks after peers that devices have heard nothing of for a while, and gives up those that are gone. */
  void watchFabric();
  /** Reads the record again on another thread, once at a time: the caller does not wait, later requests find what changed. */
  void reread(const SegmentRef& segment);

  // engine_notify.cc
  std::string takeNotify(const std::string& name, const std::string& message);
  int getNotifies(std::vector<NotifyDesc>& list);
  int notifySegment(const std::string& name, const NotifyDesc& message);
  int probe(const std::string& name);

  Options options;
  Metrics metrics;
  BatchTable batches;
  MemoryRegistry registry;
  std::string name;
  bool autoDiscover;
  std::vector<std::string> filters;
  WorkPool pool;

  void describe();
  std::string recordText();
  bool started() const { return started_; }
  uint16_t rpcPort() const { return rpcPort_; }

 private:
  struct IoThread {
    std::unique_ptr<EventLoop> loop;
    std::shared_ptr<TcpServer> server;
  };
  int bindPorts(const std::string& host, uint64_t rpcPort);
  Fd listenInRange(const std::string& host, uint16_t& port, std::string& why);
  Fd listenAtHost(const std::string& host, uint16_t& port, int& error);
  void tick();
  void beat();
  bool answersAs(const Address& address);
  bool installTcp();
  /** Closes the buffers to everybody and takes them out; ERR_BATCH_BUSY while a process of this host may still copy to or from one. */
  int release(const std::vector<BufferRef>& buffers);
  // engine_files.cc
  std::shared_ptr<FileTransport> files();
  void viewFile(SegmentView& view, const std::string& segmentName);
  FileService fileService();

  std::shared_ptr<TcpPeer> tcpPeer(Segment& segment, const Address& address, const std::string& file);
  std::shared_ptr<SegmentView> makeView(Segment& segment, SegmentDescriptor record, const ViewRef& before);
  void dropTcp(const std::shared_ptr<TcpPeer>& peer, const std::string& why);
  SegmentDescriptor ownRecord();

  void dispatch(std::vector<Piece>& pieces, Drive drive, uint64_t deadlineNs, bool mayRefresh);
  /** Takes out what a mounted file serves and what cannot be served; what stays goes to the owner over tcp. */
  void runFile(Segment& segment, const ViewRef& view, std::vector<Piece>& pieces);
  void copyOwn(Piece& piece);
  void copyOnHost(Segment& segment, const ViewRef& view, std::vector<Piece>& pieces, std::vector<Piece>& rest);
  void runTcp(Segment& segment, std::deque<TcpPiece> pieces, uint64_t deadlineNs);
  void account(Path path, uint64_t requests, uint64_t bytes);
  bool mayShm(const SegmentView& view) const { return shm_ && view.host != nullptr; }

  std::string host_, bindHost_;
  uint16_t rpcPort_ = 0, dataPort_ = 0;
  std::unique_ptr<MetadataStore> store_;
  bool handshake_ = false;
  std::atomic<bool> started_{false}, stopping_{false};
  std::string instance_, timestamp_;
  /** The segment's record was deleted by removeLocalSegment; the next registration that is published brings it back. */
  std::atomic<bool> withdrawn_{false};
  /** Another engine has the name. */
  std::atomic<bool> displaced_{false};
  std::vector<IoThread> io_;
  std::shared_ptr<RpcServer> rpc_;

  std::mutex transportMutex_;
  std::map<std::string, std::unique_ptr<NamedTransport>> transports_;
  std::atomic<bool> tcp_{false}, shm_{false}, fabric_{false}, file_{false};
  std::shared_ptr<ControlPage> control_;
  std::shared_ptr<RdmaTransport> rdma_;
  std::shared_ptr<FileTransport> files_;
  Json priorityMatrix_ = Json::object();

  std::recursive_mutex memoryMutex_;
  std::mutex recordMutex_;
  std::string record_;

  std::mutex segmentMutex_;
  std::unordered_map<SegmentID, SegmentRef> segments_;
  std::map<std::string, SegmentID> segmentIDs_;
  SegmentID nextSegment_ = 1;
  std::mutex peerMutex_;
  std::set<std::shared_ptr<TcpPeer>> peers_;
  std::mutex waitingMutex_;
  std::list<std::weak_ptr<WaitingPieces>> waiting_;

  std::mutex notifyMutex_;
  std::deque<NotifyDesc> notifies_;
  uint64_t notifyBytes_ = 0;
  /** Callers inside submit, which the end of the engine waits for. */
  std::atomic<int> inside_{0};

  std::thread heart_;
  std::mutex heartMutex_;
  std::condition_variable heartWake_;
};

}  // namespace svc
