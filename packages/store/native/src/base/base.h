// Basic types of the store's core: sizes, identifiers, error codes, and the ticks in which leases are counted.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace svc {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i32 = std::int32_t;
using i64 = std::int64_t;

static_assert(std::endian::native == std::endian::little, "the wire and the log are little endian, as memory is");

struct Uuid {
  u64 first = 0, second = 0;
  friend bool operator==(const Uuid&, const Uuid&) = default;
};

struct UuidHash {
  std::size_t operator()(const Uuid& id) const { return static_cast<std::size_t>(id.first ^ (id.second * 0x9E3779B97F4A7C15ull)); }
};

// 32 bits of 16 ms last two years of a master's uptime; a counter of milliseconds would wrap after seven weeks.
using Tick = u32;
inline constexpr u64 tickMs = 16;
inline Tick tickOf(u64 ms) { return static_cast<Tick>(ms / tickMs); }

// The store's error codes as its wire shows them.
namespace code {
inline constexpr i32 ok = 0, internal = -1, segmentNotFound = -101, segmentExists = -102, clientNotFound = -103, noHandle = -200, invalidKey = -400,
                     invalidParams = -600, illegalClient = -601, invalidWrite = -700, notReady = -703, notFound = -704, exists = -705, hasLease = -706,
                     hasTask = -708, noTask = -709, replicaNotFound = -710, replicaExists = -711, checksumMismatch = -801, notNow = -1010,
                     unavailable = -1011, notSupported = -1012, unableOffload = -1300, persistFail = -1503, dfsUnavailable = -1601,
                     tenantQuota = -1700, tenantUnknown = -1701;
}

// An enumeration whose values cross to TypeScript is one list of each(value, "name"), so that values and names cannot differ.
#define SVC_VALUE(value, name) value,
#define SVC_NAME(value, name) name,

}  // namespace svc
