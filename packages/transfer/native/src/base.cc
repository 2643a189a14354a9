// Per-thread error messages, log lines and hex.
#include "base.h"

#include <sys/random.h>

#include <atomic>
#include <cstdio>
#include <ctime>

#include "json.h"
#include "svc/transfer_engine.h"

namespace svc {

namespace {
thread_local std::string lastErrorText;
std::atomic<int> logLevel{int(LogLevel::Warning)};
constexpr const char* levelNames[] = {"error", "warn", "info"};

const char* codeName(int code) {
  switch (code) {
    case 0: return "OK";
    case 1: return "InvalidArgument";
    case 2: return "TooManyRequests";
    case 3: return "AddressNotRegistered";
    case 4: return "BatchBusy";
    case 6: return "DeviceNotFound";
    case 7: return "AddressOverlapped";
    case 8: return "NotSupportedTransport";
    case 101: return "Dns";
    case 102: return "Socket";
    case 103: return "MalformedJson";
    case 104: return "RejectHandshake";
    case 200: return "Metadata";
    case 201: return "Endpoint";
    case 202: return "Context";
    case 300: return "Numa";
    case 301: return "Clock";
    case 302: return "Memory";
    default: return "Unknown";
  }
}
}  // namespace

const std::string& lastError() { return lastErrorText; }
void setLastError(std::string message) { lastErrorText = std::move(message); }
int failWith(int code, std::string message) {
  lastErrorText = std::move(message);
  return code;
}

std::string Status::ToString() const { return message_.empty() ? codeName(code_) : std::string(codeName(code_)) + ": " + message_; }

void setLogLevel(LogLevel level) { logLevel = int(level); }

void logLine(LogLevel level, const std::string& message) {
  if (int(level) > logLevel.load(std::memory_order_relaxed)) return;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  tm utc{};
  gmtime_r(&now.tv_sec, &utc);
  char stamp[40];
  size_t length = strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  snprintf(stamp + length, sizeof stamp - length, ".%03ldZ", now.tv_nsec / 1'000'000);
  Json line = Json::object();
  line.set("level", levelNames[int(level)]);
  line.set("time", stamp);
  line.set("server", "transfer");
  line.set("pid", uint64_t(getpid()));
  line.set("msg", message);
  std::string text = line.dump() + "\n";
  // A full or closed stderr must not fail a transfer.
  if (write(2, text.data(), text.size()) < 0) return;
}

std::string randomHex(size_t bytes) {
  std::string raw(bytes, '\0');
  size_t got = 0;
  while (got < bytes) {
    ssize_t n = getrandom(raw.data() + got, bytes - got, 0);
    if (n > 0) got += size_t(n);
  }
  return toHex(raw.data(), raw.size());
}

std::string toHex(const void* data, size_t size) {
  static const char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(size * 2);
  for (size_t i = 0; i < size; i++) {
    auto byte = static_cast<const unsigned char*>(data)[i];
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

std::string fromHex(const std::string& text) {
  auto value = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  if (text.size() % 2 != 0) return {};
  std::string out;
  for (size_t i = 0; i < text.size(); i += 2) {
    int high = value(text[i]), low = value(text[i + 1]);
    if (high < 0 || low < 0) return {};
    out += char(high * 16 + low);
  }
  return out;
}

std::string hexAddress(uint64_t address) {
  char text[24];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

std::string rangeText(uint64_t address, uint64_t length) { return "[" + hexAddress(address) + ", +" + std::to_string(length) + ")"; }

}  // namespace svc
