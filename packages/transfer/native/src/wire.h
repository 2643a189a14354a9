// The formats of the TCP data plane and of the handshake's frames; a fuzzer drives the parsers.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace svc::wire {

// Data plane, little-endian:  size u64 | address u64 | opcode u8 | 7 unused bytes
inline constexpr size_t HEADER_BYTES = 24;
inline constexpr uint8_t OP_READ = 0, OP_WRITE = 1;
// Used only between our own engines, and always acknowledged. The connection begins with OPEN, whose body is the name of a file segment;
// the addresses of its FILE requests are offsets in that segment.
inline constexpr uint8_t OP_FILE = 0x10, OP_OPEN = 0x20;
/** Requests a status frame in answer. */
inline constexpr uint8_t OP_ACKNOWLEDGED = 0x80;
inline constexpr size_t STATUS_BYTES = 8;
inline constexpr uint64_t STATUS_OK = 0x4D435456ull << 32;
inline constexpr uint64_t STATUS_REFUSED = STATUS_OK | 1;

struct Header {
  uint64_t size = 0, address = 0;
  uint8_t opcode = 0;
  bool write() const { return (opcode & 1) != 0; }
  bool acknowledged() const { return (opcode & OP_ACKNOWLEDGED) != 0; }
  bool ofFile() const { return (opcode & OP_FILE) != 0; }
  bool opensFile() const { return (opcode & OP_OPEN) != 0; }
};

inline void putHeader(char* out, const Header& header) {
  memcpy(out, &header.size, 8);
  memcpy(out + 8, &header.address, 8);
  memset(out + 16, 0, 8);
  out[16] = char(header.opcode);
}

/** Returns nothing for an unknown opcode. */
inline std::optional<Header> readHeader(const char* in) {
  Header header;
  memcpy(&header.size, in, 8);
  memcpy(&header.address, in + 8, 8);
  header.opcode = uint8_t(in[16]);
  if ((header.opcode & ~(OP_ACKNOWLEDGED | OP_FILE | OP_OPEN | OP_WRITE)) != 0) return std::nullopt;
  if (header.ofFile() && !header.acknowledged()) return std::nullopt;
  if (header.opensFile() && (!header.ofFile() || !header.write())) return std::nullopt;
  return header;
}

// Handshake:  length u64 (with the type byte) | type u8 | JSON. A first byte above 3 comes from an older peer: the whole body is JSON.
inline constexpr uint8_t RPC_CONNECTION = 0, RPC_METADATA = 1, RPC_NOTIFY = 2, RPC_PROBE = 3;
inline constexpr uint64_t RPC_MAX_BYTES = 1 << 20;
/** Records of peers with many buffers are longer than requests. */
inline constexpr uint64_t RPC_MAX_REPLY_BYTES = 128 << 20;

struct Frame {
  bool typed = true;
  uint8_t type = RPC_CONNECTION;
  std::string_view json;
};

inline std::string putFrame(const Frame& frame) {
  std::string out(8, '\0');
  if (frame.typed) out += char(frame.type);
  out += frame.json;
  uint64_t length = out.size() - 8;
  memcpy(out.data(), &length, 8);
  return out;
}

/** Returns the length of the frame's body; nothing if it is 0 or above the limit. */
inline std::optional<uint64_t> frameLength(const char* in, uint64_t maxBytes) {
  uint64_t length;
  memcpy(&length, in, 8);
  if (length == 0 || length > maxBytes) return std::nullopt;
  return length;
}

inline Frame readFrame(std::string_view body) {
  if (uint8_t(body[0]) > RPC_PROBE) return {false, RPC_CONNECTION, body};
  return {true, uint8_t(body[0]), body.substr(1)};
}

}  // namespace svc::wire
