// The interface to the storage of segment records: etcd, Redis or a metadata server.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "options.h"

namespace svc {

enum class Lookup { Found, Missing, Failed };

/** Calls block for a limited time and set lastError() when they fail. Thread-safe. */
class MetadataStore {
 public:
  virtual ~MetadataStore() = default;
  virtual Lookup get(const std::string& key, std::string& value) = 0;
  /** The record expires after the options' lease unless refresh() renews it. */
  virtual bool set(const std::string& key, const std::string& value) = 0;
  /** For records that outlive their writer. */
  virtual bool setForever(const std::string& key, const std::string& value) = 0;
  virtual bool remove(const std::string& key) = 0;
  virtual Lookup list(const std::string& prefix, std::map<std::string, std::string>& records) = 0;
  /** Renews the leases of these records, and rewrites those that the store has lost. */
  virtual bool refresh(const std::map<std::string, std::string>& records) = 0;
};

/** Returns null with lastError() if the connection string is not recognized. */
std::unique_ptr<MetadataStore> openMetadataStore(const std::string& connection, const Options& options);
/** With P2PHANDSHAKE the engines exchange records directly. */
bool isHandshake(const std::string& connection);

std::unique_ptr<MetadataStore> openHttpStore(const std::string& url, const Options& options);
std::unique_ptr<MetadataStore> openEtcdStore(const std::string& endpoints, const Options& options);
std::unique_ptr<MetadataStore> openRedisStore(const std::string& address, const Options& options);

}  // namespace svc
