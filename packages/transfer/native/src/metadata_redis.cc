// Records in Redis: plain strings with an expiry that refresh() renews.
#include <vector>

#include "metadata_store.h"
#include "net.h"
#include "redis_reply.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {

constexpr size_t MAX_ANSWER_BYTES = 128 << 20;

class Session {
 public:
  bool open(const std::string& host, uint16_t port) {
    auto address = resolveHost(host, port);
    if (!address) return false;
    deadline_ = nowNs() + METADATA_TOTAL_MS * NS_PER_MS;
    fd_ = connectWithin(*address, METADATA_CONNECT_MS);
    return bool(fd_);
  }

  std::optional<RedisReply> call(const std::vector<std::string>& words) {
    std::string text = "*" + std::to_string(words.size()) + "\r\n";
    for (const auto& word : words) text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
    if (!sendAll(fd_.get(), text.data(), text.size(), deadline_)) return trouble(errnoText());
    auto reply = read();
    if (reply && reply->kind == '-') return trouble(reply->text);
    return reply;
  }

 private:
  std::optional<RedisReply> trouble(const std::string& why) {
    setLastError("redis: " + why);
    return std::nullopt;
  }

  bool more() {
    char chunk[16 << 10];
    ssize_t n = receiveSome(fd_.get(), chunk, sizeof chunk, deadline_);
    if (n > 0) buffer_.append(chunk, size_t(n));
    return n > 0;
  }

  std::optional<RedisReply> read() {
    while (true) {
      RedisReply reply;
      size_t used = 0;
      switch (RedisReply::parse(buffer_, reply, used)) {
        case RedisReply::Parsed::Whole: buffer_.erase(0, used); return reply;
        case RedisReply::Parsed::Bad: return trouble("the answer is not of this protocol");
        case RedisReply::Parsed::More: break;
      }
      if (buffer_.size() > MAX_ANSWER_BYTES) return trouble("the answer is longer than " + std::to_string(MAX_ANSWER_BYTES) + " bytes");
      if (!more()) return trouble("the answer was cut off");
    }
  }

  Fd fd_;
  uint64_t deadline_ = 0;
  std::string buffer_;
};

class RedisStore : public MetadataStore {
 public:
  RedisStore(std::string host, uint16_t port, const Options& options) : host_(std::move(host)), port_(port), options_(options) {}

  Lookup get(const std::string& key, std::string& value) override {
    auto reply = call({"GET", key});
    if (!reply) return Lookup::Failed;
    if (reply->null) return Lookup::Missing;
    value = reply->text;
    return Lookup::Found;
  }

  bool set(const std::string& key, const std::string& value) override {
    if (options_.leaseMs == 0) return setForever(key, value);
    return call({"SET", key, value, "PX", std::to_string(options_.leaseMs)}).has_value();
  }
  bool setForever(const std::string& key, const std::string& value) override { return call({"SET", key, value}).has_value(); }
  bool remove(const std::string& key) override { return call({"DEL", key}).has_value(); }

  Lookup list(const std::string& prefix, std::map<std::string, std::string>& records) override {
    std::string pattern;
    for (char c : prefix) {
      if (strchr("*?[]\\^", c) != nullptr) pattern += '\\';
      pattern += c;
    }
    auto keys = call({"KEYS", pattern + "*"});
    if (!keys) return Lookup::Failed;
    for (const auto& key : keys->items)
      if (get(key, records[key]) != Lookup::Found) records.erase(key);
    return Lookup::Found;
  }

  bool refresh(const std::map<std::string, std::string>& records) override {
    for (const auto& [key, value] : records) {
      auto reply = options_.leaseMs == 0 ? call({"EXISTS", key}) : call({"PEXPIRE", key, std::to_string(options_.leaseMs)});
      if (!reply || (reply->text == "0" && !set(key, value))) return false;
    }
    return true;
  }

 private:
  std::optional<RedisReply> call(const std::vector<std::string>& words) {
    Session session;
    if (!session.open(host_, port_)) return std::nullopt;
    if (!options_.redisPassword.empty()) {
      std::vector<std::string> login{"AUTH"};
      if (!options_.redisUsername.empty()) login.push_back(options_.redisUsername);
      login.push_back(options_.redisPassword);
      if (!session.call(login)) return std::nullopt;
    }
    if (options_.redisDatabase != 0 && !session.call({"SELECT", std::to_string(options_.redisDatabase)})) return std::nullopt;
    return session.call(words);
  }

  std::string host_;
  uint16_t port_;
  const Options options_;
};

}  // namespace

std::unique_ptr<MetadataStore> openRedisStore(const std::string& text, const Options& options) {
  auto where = splitHostPort(text);
  if (!where || where->first.empty() || text.find('/') != std::string::npos) {
    setLastError("metadata connection redis://" + text + ": expected redis://host:port");
    return nullptr;
  }
  return std::make_unique<RedisStore>(where->first, where->second == 0 ? uint16_t(6379) : where->second, options);
}

}  // namespace svc
