// Reports for JavaScript as text: replicas of a key, pages of keys, segments, clients.
#pragma once
#include "store.h"

namespace svc {

// Converts between ids and 8-4-4-4-12 hexadecimal digits; false for anything else.
std::string textOf(const Uuid& id);
bool uuidOf(std::string_view text, Uuid& id);

// A JSON array of a key's readable replicas, in the form of /query_key.
std::string replicasJson(const Store& store, u32 index);
// The JSON entry of a key in the form of /batch_query_keys.
std::string entryJson(Store& store, u16 tenant, std::string_view key);
// Writes the body of GET /query_key?key=...[&tenant_id=...]; returns its status.
u32 queryKeyJson(Store& store, std::string_view query, std::string& body);
// The readable replicas for the RPC: ids and sizes are text, since a JSON number has too few bits.
std::string descriptorsJson(const Store& store, u32 index, ReplicaStatus status = ReplicaStatus::complete);
// The same for replicas that are being written.
std::string targetJson(const Store& store, u32 index);
// All replicas, readable or not, by the name of their segment; empty if the object does not exist.
std::string routeJson(Store& store, u16 tenant, std::string_view key);
// One object for listings: its size, replicas, pins, checksum and fingerprint.
std::string objectJson(const Store& store, u32 index);
std::string segmentsJson(const Store& store);
// Clients' disks, in the form of /api/v1/disks.
std::string disksJson(const Store& store);
// The shared folder; empty if there is none.
std::string folderJson(const Store& store);
std::string clientsJson(const Store& store);
std::string tenantsJson(const Store& store);

}  // namespace svc
