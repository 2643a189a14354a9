// One connection of the data port, shared by its server and its two halves: serving memory and serving files.
#pragma once
#include <deque>
#include <memory>
#include <string>

#include "tcp_server.h"

namespace svc {

//   header ──ok──▶ body (write) ──▶ header      refused ──▶ draining ──▶ closed
//          └─of a file─▶ chunk ──▶ away (in the work pool) ──▶ chunk … ──▶ header
class TcpServerConnection : public EventHandler, public std::enable_shared_from_this<TcpServerConnection> {
 public:
  TcpServerConnection(TcpServer& server, Fd fd) : server_(server), loop_(server.loop_), fd_(std::move(fd)), lastActiveMs_(nowMs()) {}
  int fd() const { return fd_.get(); }
  uint64_t lastActiveMs() const { return lastActiveMs_; }
  bool drained() const { return draining_ && nowMs() - drainingSinceMs_ > DRAIN_MS; }
  void onEvents(uint32_t events) override;
  void close();

 private:
  /** After a refusal the peer's remaining bytes are discarded for this long, so that a reset does not destroy the status frame. */
  static constexpr uint64_t DRAIN_MS = 1000;

  struct Outgoing {
    BufferRef buffer;  // null: an 8-byte status, or a file's bytes
    uint64_t address = 0, length = 0, status = 0;
    std::shared_ptr<char> chunk;
  };

  void watch();

  /** Passes the chunk to the pool. Until it returns, nothing on this connection is read or written. */
  void sendAway();
  void comeBack(bool moved);

  /** Continues once all output has been sent: with the rest of a file's bytes, then with input that arrived meanwhile. */
  bool proceed();
  void refuse();
  bool readSome();
  bool parse(const char* at, size_t size);
  bool begin(const char* bytes);
  bool beginFile(const wire::Header& header);
  void advanceBody(uint64_t bytes);
  /** Returns false if the connection cannot continue. */
  bool flush();

  TcpServer& server_;
  EventLoop& loop_;
  Fd fd_;
  uint64_t lastActiveMs_;
  char header_[wire::HEADER_BYTES];
  size_t partial_ = 0;
  bool afterLarge_ = false;  // the last request had a large body
  BufferRef body_;
  uint64_t bodyAt_ = 0, bodyLeft_ = 0;
  bool acknowledge_ = true;
  std::unique_ptr<FileSession> file_;
  /** The chunk is in the pool; bytes that arrived with it are buffered. */
  bool away_ = false, fileAnswered_ = false;
  std::string unparsed_;
  std::deque<Outgoing> out_;
  uint64_t outOffset_ = 0;
  uint32_t watched_ = EPOLLIN;
  bool draining_ = false;
  uint64_t drainingSinceMs_ = 0;
};

}  // namespace svc
