// What the script asks to see, as text: replicas of a key, pages of keys, segments, clients.
#pragma once
#include "store.h"

namespace svc {

// 8-4-4-4-12 hexadecimal digits, and back; false for anything else.
std::string textOf(const Uuid& id);
bool uuidOf(std::string_view text, Uuid& id);

// The JSON array of a key's replicas that may be read, in the form of /query_key.
std::string replicasJson(const Store& store, u32 index);
// The JSON entry of a key in the form of /batch_query_keys.
std::string entryJson(Store& store, u16 tenant, std::string_view key);
// The answer of GET /query_key?key=...[&tenant_id=...]: its status.
u32 queryKeyJson(Store& store, std::string_view query, std::string& body);
// Its readable replicas for the RPC: ids and sizes as text, since JSON's numbers have not enough bits.
std::string descriptorsJson(const Store& store, u32 index, ReplicaStatus status = ReplicaStatus::complete);
// The same of those that are being written.
std::string targetJson(const Store& store, u32 index);
// Every replica, readable or not, by the name of its segment; empty where the object is not there.
std::string routeJson(Store& store, u16 tenant, std::string_view key);
// One object for listings: its size, replicas, pins, and the checksum and fingerprint that its writer gave. Empty when there is none.
std::string objectJson(const Store& store, u32 index);
std::string segmentsJson(const Store& store);
// Disks of clients, as /api/v1/disks shows them.
std::string disksJson(const Store& store);
// The folder that clients share; empty where there is none.
std::string folderJson(const Store& store);
std::string clientsJson(const Store& store);
std::string tenantsJson(const Store& store);

}  // namespace svc
