// Records in etcd v3, through its JSON gateway; all keys of an engine share one lease.
#include <charconv>
#include <mutex>
#include <vector>

#include "http_client.h"
#include "json.h"
#include "metadata_store.h"
#include "net.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {

constexpr char BASE64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string encode64(const std::string& data) {
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (unsigned char c : data) {
    bits = bits << 8 | c;
    for (have += 8; have >= 6; have -= 6) out += BASE64[bits >> (have - 6) & 63];
  }
  if (have > 0) out += BASE64[bits << (6 - have) & 63];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

std::string decode64(const std::string& text) {
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (char c : text) {
    const char* found = c == '=' || c == 0 ? nullptr : strchr(BASE64, c);
    if (found == nullptr) continue;
    bits = bits << 6 | uint32_t(found - BASE64);
    if ((have += 6) >= 8) out += char(bits >> (have -= 8) & 255);
  }
  return out;
}

class EtcdStore : public MetadataStore {
 public:
  EtcdStore(std::vector<std::pair<std::string, uint16_t>> endpoints, const Options& options) : endpoints_(std::move(endpoints)), leaseMs_(options.leaseMs) {}

  Lookup get(const std::string& key, std::string& value) override {
    auto answer = call("/v3/kv/range", Json::Object{{"key", encode64(key)}});
    if (!answer) return Lookup::Failed;
    const auto& found = (*answer)["kvs"].items();
    if (found.empty()) return Lookup::Missing;
    value = decode64(found[0]["value"].text());
    return Lookup::Found;
  }

  bool set(const std::string& key, const std::string& value) override {
    std::lock_guard lock(mutex_);
    return put(key, value);
  }

  bool setForever(const std::string& key, const std::string& value) override {
    return call("/v3/kv/put", Json::Object{{"key", encode64(key)}, {"value", encode64(value)}}).has_value();
  }

  bool remove(const std::string& key) override { return call("/v3/kv/deleterange", Json::Object{{"key", encode64(key)}}).has_value(); }

  Lookup list(const std::string& prefix, std::map<std::string, std::string>& records) override {
    std::string end = prefix;
    end.back() = char(end.back() + 1);
    auto answer = call("/v3/kv/range", Json::Object{{"key", encode64(prefix)}, {"range_end", encode64(end)}});
    if (!answer) return Lookup::Failed;
    for (const auto& entry : (*answer)["kvs"].items()) records[decode64(entry["key"].text())] = decode64(entry["value"].text());
    return Lookup::Found;
  }

  bool refresh(const std::map<std::string, std::string>& records) override {
    std::lock_guard lock(mutex_);
    if (!lease_.empty()) {
      auto answer = call("/v3/lease/keepalive", Json::Object{{"ID", lease_}});
      if (!answer) return false;
      if ((*answer)["result"]["TTL"].text("0") != "0") return true;
      lease_.clear();
    }
    // Without a lease, or after the store lost it, the records themselves are written again.
    for (const auto& [key, value] : records)
      if (!put(key, value)) return false;
    return true;
  }

 private:
  bool put(const std::string& key, const std::string& value) {
    if (leaseMs_ == 0) return setForever(key, value);
    for (int attempt = 0; attempt < 2; attempt++) {
      if (lease_.empty()) {
        auto granted = call("/v3/lease/grant", Json::Object{{"TTL", std::to_string((leaseMs_ + 999) / 1000)}});
        if (!granted) return false;
        lease_ = (*granted)["ID"].text();
      }
      if (call("/v3/kv/put", Json::Object{{"key", encode64(key)}, {"value", encode64(value)}, {"lease", lease_}})) return true;
      // The answer "requested lease not found" means that it expired while this process was stopped.
      lease_.clear();
    }
    return false;
  }

  std::optional<Json> call(const char* path, Json::Object body) {
    for (const auto& [host, port] : endpoints_) {
      auto answer = callHttp({"POST", host, path, Json(body).dump(), port, {{"Content-Type", "application/json"}}});
      if (!answer) continue;
      auto json = Json::parse(answer->body);
      if (answer->status == 200 && json) return json;
      setLastError("etcd " + joinHostPort(host, port) + path + ": it answered " + std::to_string(answer->status) + " " + answer->body.substr(0, 200));
      return std::nullopt;
    }
    return std::nullopt;
  }

  std::vector<std::pair<std::string, uint16_t>> endpoints_;
  uint64_t leaseMs_;
  std::mutex mutex_;
  std::string lease_;
};

}  // namespace

std::unique_ptr<MetadataStore> openEtcdStore(const std::string& text, const Options& options) {
  std::vector<std::pair<std::string, uint16_t>> endpoints;
  for (size_t at = 0; at <= text.size();) {
    size_t end = std::min(text.find_first_of(";,", at), text.size());
    auto where = splitHostPort(text.substr(at, end - at));
    if (!where || where->first.empty() || text.substr(at, end - at).find('/') != std::string::npos) {
      setLastError("metadata connection etcd://" + text + ": expected host:port, several separated by ;");
      return nullptr;
    }
    endpoints.emplace_back(where->first, where->second == 0 ? uint16_t(2379) : where->second);
    at = end + 1;
  }
  return std::make_unique<EtcdStore>(std::move(endpoints), options);
}

}  // namespace svc
