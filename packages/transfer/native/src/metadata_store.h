// Where segment records are kept: etcd, redis or a metadata server, behind one interface.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "options.h"

namespace svc {

enum class Lookup { Found, Missing, Failed };

/** Calls block within bounds and set lastError() when they fail. Thread-safe. */
class MetadataStore {
 public:
  virtual ~MetadataStore() = default;
  virtual Lookup get(const std::string& key, std::string& value) = 0;
  /** Kept for the options' lease, and as long as refresh() goes on. */
  virtual bool set(const std::string& key, const std::string& value) = 0;
  /** For records that outlive who writes them. */
  virtual bool setForever(const std::string& key, const std::string& value) = 0;
  virtual bool remove(const std::string& key) = 0;
  virtual Lookup list(const std::string& prefix, std::map<std::string, std::string>& records) = 0;
  /** Renews the leases of these records; writes again what the store has lost. */
  virtual bool refresh(const std::map<std::string, std::string>& records) = 0;
};

/** Null with lastError() when the string is none that is known. */
std::unique_ptr<MetadataStore> openMetadataStore(const std::string& connection, const Options& options);
/** P2PHANDSHAKE: records travel between the engines themselves. */
bool isHandshake(const std::string& connection);

std::unique_ptr<MetadataStore> openHttpStore(const std::string& url, const Options& options);
std::unique_ptr<MetadataStore> openEtcdStore(const std::string& endpoints, const Options& options);
std::unique_ptr<MetadataStore> openRedisStore(const std::string& address, const Options& options);

}  // namespace svc
