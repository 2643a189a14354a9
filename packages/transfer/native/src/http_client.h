// One HTTP/1.1 request and its answer over a connection of its own, within a bound.
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

/** Nothing with lastError() set when no whole answer came in time. */
std::optional<HttpAnswer> callHttp(const HttpRequest& request);
std::string percentEncode(const std::string& text);

/** Head and body of an answer, as far as it has arrived; also driven by the fuzzer. */
class HttpAnswerReader {
 public:
  static constexpr size_t MAX_HEAD_BYTES = 64 << 10, MAX_BODY_BYTES = 64 << 20;
  enum class State { More, Done, Bad };
  State take(std::string_view bytes);
  /** The peer closed: done when the body had no length of its own. */
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
