// A small HTTP/1.1 client that supports content length, chunks, and bodies that end with the connection.
#include "http_client.h"

#include <charconv>

#include "net.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = char(c + 32);
  return text;
}
}  // namespace

std::string percentEncode(const std::string& text) {
  std::string out;
  for (unsigned char c : text) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.' || c == '~') out += char(c);
    else out += "%" + std::string{"0123456789ABCDEF"[c >> 4], "0123456789ABCDEF"[c & 15]};
  }
  return out;
}

HttpAnswerReader::State HttpAnswerReader::take(std::string_view bytes) {
  buffer_ += bytes;
  return parse();
}

HttpAnswerReader::State HttpAnswerReader::end() {
  if (!headSeen_ || chunked_ || length_) return State::Bad;
  answer_.body = std::move(buffer_);
  return State::Done;
}

HttpAnswerReader::State HttpAnswerReader::parse() {
  while (!headSeen_) {
    size_t end = buffer_.find("\r\n\r\n");
    if (end == std::string::npos) return buffer_.size() > MAX_HEAD_BYTES ? State::Bad : State::More;
    std::string head = buffer_.substr(0, end);
    buffer_.erase(0, end + 4);
    if (head.rfind("HTTP/1.", 0) != 0 || head.size() < 12) return State::Bad;
    auto [rest, error] = std::from_chars(head.data() + 9, head.data() + 12, answer_.status);
    if (error != std::errc()) return State::Bad;
    if (answer_.status >= 100 && answer_.status < 200) continue;
    headSeen_ = true;
    for (size_t at = head.find("\r\n"); at != std::string::npos; at = head.find("\r\n", at + 2)) {
      std::string line = lower(head.substr(at + 2, head.find("\r\n", at + 2) - at - 2));
      size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      size_t from = line.find_first_not_of(" \t", colon + 1);
      std::string value = from == std::string::npos ? "" : line.substr(from);
      if (line.compare(0, colon, "transfer-encoding") == 0) chunked_ = value.find("chunked") != std::string::npos;
      if (line.compare(0, colon, "content-length") == 0) {
        size_t length = 0;
        if (std::from_chars(value.data(), value.data() + value.size(), length).ec != std::errc() || length > MAX_BODY_BYTES) return State::Bad;
        length_ = length;
      }
    }
    if (answer_.status == 204 || answer_.status == 304) length_ = 0;
  }
  if (chunked_) return takeChunks();
  if (buffer_.size() > MAX_BODY_BYTES) return State::Bad;
  if (!length_ || buffer_.size() < *length_) return State::More;
  answer_.body = buffer_.substr(0, *length_);
  return State::Done;
}

HttpAnswerReader::State HttpAnswerReader::takeChunks() {
  while (true) {
    size_t line = buffer_.find("\r\n");
    if (line == std::string::npos) return buffer_.size() > MAX_HEAD_BYTES ? State::Bad : State::More;
    size_t size = 0;
    if (std::from_chars(buffer_.data(), buffer_.data() + line, size, 16).ec != std::errc() || size > MAX_BODY_BYTES || answer_.body.size() + size > MAX_BODY_BYTES)
      return State::Bad;
    if (size == 0) return State::Done;
    if (buffer_.size() < line + 2 + size + 2) return State::More;
    answer_.body.append(buffer_, line + 2, size);
    buffer_.erase(0, line + 2 + size + 2);
  }
}

std::optional<HttpAnswer> callHttp(const HttpRequest& request) {
  std::string who = request.method + " http://" + joinHostPort(request.host, request.port) + request.target;
  auto fail = [&](const std::string& why) -> std::optional<HttpAnswer> {
    setLastError(who + ": " + why);
    return std::nullopt;
  };
  auto address = resolveHost(request.host, request.port);
  if (!address) return fail(lastError());
  uint64_t deadline = nowNs() + METADATA_TOTAL_MS * NS_PER_MS;
  Fd fd = connectWithin(*address, METADATA_CONNECT_MS);
  if (!fd) return fail(lastError());
  std::string text = request.method + " " + request.target + " HTTP/1.1\r\nHost: " + joinHostPort(request.host, request.port) + "\r\nConnection: close\r\n";
  for (const auto& [name, value] : request.headers) text += name + ": " + value + "\r\n";
  if (!request.body.empty() || request.method == "PUT" || request.method == "POST") text += "Content-Length: " + std::to_string(request.body.size()) + "\r\n";
  text += "\r\n" + request.body;
  if (!sendAll(fd.get(), text.data(), text.size(), deadline)) return fail("writing: " + errnoText());
  HttpAnswerReader reader;
  char chunk[32 << 10];
  while (true) {
    ssize_t n = receiveSome(fd.get(), chunk, sizeof chunk, deadline);
    if (n < 0) return fail("no answer: " + errnoText());
    auto state = n == 0 ? reader.end() : reader.take({chunk, size_t(n)});
    if (state == HttpAnswerReader::State::Bad) return fail("the answer is cut off, or no HTTP");
    if (state == HttpAnswerReader::State::Done) return std::move(reader.answer());
  }
}

}  // namespace svc
