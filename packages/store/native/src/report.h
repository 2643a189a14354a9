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
std::string entryJson(Store& store, std::string_view key);
std::string segmentsJson(const Store& store);
std::string clientsJson(const Store& store);
std::string tenantsJson(const Store& store);

}  // namespace svc
