// One HTTP/1.1 request and its answer over a new connection, within a time limit.
#pragma once
#include <map>
#include <optional>
#include <string>

namespace svc {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

struct HttpRequest {
  std::string method, host, target, body;
  uint16_t port = 80;
  std::map<std::string, std::string> headers;
};

/** Returns nothing, with lastError(), if no complete answer came in time. */
std::optional<HttpAnswer> callHttp(const HttpRequest& request);
std::string percentEncode(const std::string& text);

/** Parses the head and body of an answer incrementally; the fuzzer drives it, too. */
class HttpAnswerReader {
 public:
  static constexpr size_t MAX_HEAD_BYTES = 64 << 10, MAX_BODY_BYTES = 64 << 20;
  enum class State { More, Done, Bad };
  State take(std::string_view bytes);
  /** The peer closed the connection, which completes a body without a length. */
  State end();
  HttpAnswer& answer() { return answer_; }

 private:
  State parse();
  State takeChunks();
  HttpAnswer answer_;
  std::string buffer_;
  bool headSeen_ = false, chunked_ = false;
  std::optional<size_t> length_;
};

}  // namespace svc
