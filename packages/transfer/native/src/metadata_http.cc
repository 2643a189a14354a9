// Records in an HTTP metadata server (GET, PUT and DELETE of <uri>?key=…), and the choice of a store by the metadata connection's scheme.
#include <charconv>

#include "http_client.h"
#include "json.h"
#include "metadata_store.h"
#include "net.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {

class HttpStore : public MetadataStore {
 public:
  HttpStore(std::string host, uint16_t port, std::string path, const Options& options) : host_(std::move(host)), port_(port), path_(std::move(path)), leaseMs_(options.leaseMs) {}

  Lookup get(const std::string& key, std::string& value) override {
    auto answer = call("GET", key, "", 0);
    if (!answer) return Lookup::Failed;
    if (answer->status == 404) return Lookup::Missing;
    if (answer->status != 200) return complain(key, *answer), Lookup::Failed;
    value = std::move(answer->body);
    return Lookup::Found;
  }

  bool set(const std::string& key, const std::string& value) override { return put(key, value, leaseMs_); }
  bool setForever(const std::string& key, const std::string& value) override { return put(key, value, 0); }

  bool remove(const std::string& key) override {
    auto answer = call("DELETE", key, "", 0);
    if (answer && answer->status != 200 && answer->status != 404) complain(key, *answer);
    return answer && (answer->status == 200 || answer->status == 404);
  }

  Lookup list(const std::string& prefix, std::map<std::string, std::string>& records) override {
    auto answer = callHttp({"GET", host_, path_ + "?prefix=" + percentEncode(prefix), "", port_, {}});
    if (!answer) return Lookup::Failed;
    auto json = answer->status == 200 ? Json::parse(answer->body) : std::nullopt;
    if (!json || !json->isObject()) return setLastError("this metadata server lists no keys: it answered " + std::to_string(answer->status)), Lookup::Failed;
    for (const auto& [key, value] : json->members()) records[key] = value.text();
    return Lookup::Found;
  }

  bool refresh(const std::map<std::string, std::string>& records) override {
    bool all = true;
    for (const auto& [key, value] : records) all &= set(key, value);
    return all;
  }

 private:
  std::optional<HttpAnswer> call(const char* method, const std::string& key, const std::string& body, uint64_t leaseMs) {
    HttpRequest request{method, host_, path_ + "?key=" + percentEncode(key), body, port_, {}};
    if (!body.empty()) request.headers["Content-Type"] = "application/json";
    if (leaseMs != 0) request.headers["X-Lease-Ttl-Ms"] = std::to_string(leaseMs);
    return callHttp(request);
  }

  bool put(const std::string& key, const std::string& value, uint64_t leaseMs) {
    auto answer = call("PUT", key, value, leaseMs);
    // Some servers refuse to overwrite an address key; this one is left from an earlier start under our name.
    if (answer && answer->status == 400 && remove(key)) answer = call("PUT", key, value, leaseMs);
    if (answer && answer->status != 200) complain(key, *answer);
    return answer && answer->status == 200;
  }

  void complain(const std::string& key, const HttpAnswer& answer) {
    setLastError("metadata server http://" + joinHostPort(host_, port_) + path_ + ": key " + key + ": it answered " + std::to_string(answer.status) + " " + answer.body.substr(0, 200));
  }

  std::string host_;
  uint16_t port_;
  std::string path_;
  uint64_t leaseMs_;
};

}  // namespace

std::unique_ptr<MetadataStore> openHttpStore(const std::string& url, const Options& options) {
  std::string rest = url.substr(url.find("://") + 3);
  size_t slash = rest.find('/');
  auto where = splitHostPort(rest.substr(0, slash));
  if (!where || where->first.empty()) {
    setLastError("metadata connection " + url + ": expected http://host:port/path");
    return nullptr;
  }
  std::string path = slash == std::string::npos ? "/" : rest.substr(slash);
  return std::make_unique<HttpStore>(where->first, where->second == 0 ? uint16_t(80) : where->second, path, options);
}

bool isHandshake(const std::string& connection) { return connection == "P2PHANDSHAKE"; }

std::unique_ptr<MetadataStore> openMetadataStore(const std::string& connection, const Options& options) {
  size_t colon = connection.find("://");
  std::string scheme = colon == std::string::npos ? "etcd" : connection.substr(0, colon);
  std::string rest = colon == std::string::npos ? connection : connection.substr(colon + 3);
  if (rest.empty()) {
    setLastError("the metadata connection is empty; give P2PHANDSHAKE, [etcd://]host:port, redis://host:port or http://host:port/path");
    return nullptr;
  }
  if (scheme == "http") return openHttpStore(connection, options);
  if (scheme == "etcd") return openEtcdStore(rest, options);
  if (scheme == "redis") return openRedisStore(rest, options);
  setLastError("metadata connection " + connection + ": there is no client for " + scheme + "://; etcd, redis and http are known");
  return nullptr;
}

}  // namespace svc
