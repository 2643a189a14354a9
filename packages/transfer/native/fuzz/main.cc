// Fuzz targets for every parser of untrusted bytes, with a simple driver for hosts without libFuzzer.
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "descriptor.h"
#include "http_client.h"
#include "json.h"
#include "net.h"
#include "redis_reply.h"
#include "tcp_file_session.h"
#include "tcp_pipe.h"
#include "wire.h"

using namespace svc;

namespace {

void fuzzJson(std::string_view data) {
  auto json = Json::parse(data);
  if (!json) return;
  auto again = Json::parse(json->dump());
  if (!again || again->dump() != json->dump()) abort();
}

void fuzzDescriptor(std::string_view data) {
  auto json = Json::parse(data);
  if (!json) return;
  std::string why;
  auto record = SegmentDescriptor::read(*json, why);
  if (!record) {
    if (why.empty()) abort();
    return;
  }
  for (const auto& buffer : record->buffers) {
    if (record->holding(buffer.address, buffer.length) == nullptr && record->buffers.size() == 1) abort();
    if (record->holding(buffer.address, ~0ull) != nullptr) abort();
  }
  auto again = SegmentDescriptor::read(record->toJson(), why);
  if (!again || again->buffers.size() != record->buffers.size()) abort();
}

void fuzzHeader(std::string_view data) {
  if (data.size() < wire::HEADER_BYTES) return;
  auto header = wire::readHeader(data.data());
  if (!header) return;
  char out[wire::HEADER_BYTES];
  wire::putHeader(out, *header);
  if (memcmp(out, data.data(), 17) != 0) abort();
  if (header->opensFile() && !(header->ofFile() && header->write() && header->acknowledged())) abort();
  if (inside(1000, 100, header->address, header->size) && (header->address < 1000 || header->size > 100 || header->address + header->size > 1100)) abort();
}

/**
 * Feeds the requests of one connection to a file segment, as the data port does; the "file" has 4096 bytes, which no request may exceed.
 */
void fuzzFileSession(std::string_view data) {
  constexpr uint64_t LENGTH = 4096;
  static const std::shared_ptr<FileSegment> segment = FileSegment::ofLength(LENGTH);
  FileService service{[](const std::string& name) { return name.empty() ? nullptr : segment; },
                      [](const FileSegment&, FileRequest& request) {
                        if (!inside(0, LENGTH, request.offset, request.length) || request.length > FileSession::CHUNK_BYTES) abort();
                        if (!request.write) memset(reinterpret_cast<char*>(request.local), 1, request.length);
                        return true;
                      },
                      nullptr, nullptr};
  FileSession session(service);
  while (data.size() >= wire::HEADER_BYTES) {
    auto header = wire::readHeader(data.data());
    data.remove_prefix(wire::HEADER_BYTES);
    if (!header || !header->ofFile() || header->size == 0 || !session.begin(*header)) return;
    uint64_t moved = 0;
    while (!session.over()) {
      if (session.taking() && !session.ready()) {
        if (data.empty()) return;
        size_t taken = session.take(data.data(), data.size());
        if (taken == 0 || taken > data.size()) abort();
        data.remove_prefix(taken);
        continue;
      }
      if (!session.ready()) abort();
      if (!session.work()) return;
      if (!session.reads()) continue;
      size_t size = 0;
      auto chunk = session.giveChunk(size);
      if (chunk == nullptr || size == 0) abort();
      moved += size;
    }
    if (session.reads() && moved != header->size) abort();
  }
}

void fuzzFrame(std::string_view data) {
  if (data.size() < 9) return;
  auto length = wire::frameLength(data.data(), wire::RPC_MAX_BYTES);
  if (!length || *length > data.size() - 8) return;
  wire::Frame frame = wire::readFrame(data.substr(8, *length));
  std::string again = wire::putFrame(frame);
  if (again != data.substr(0, 8 + *length)) abort();
  Json::parse(frame.json);
}

void fuzzHttp(std::string_view data) {
  HttpAnswerReader reader;
  // The input is split, because a stream arrives in pieces.
  for (size_t at = 0; at < data.size(); at += 7)
    if (reader.take(data.substr(at, 7)) != HttpAnswerReader::State::More) return;
  reader.end();
}

void fuzzRedis(std::string_view data) {
  RedisReply reply, again;
  size_t used = 0, usedAgain = 0;
  if (RedisReply::parse(data, reply, used) != RedisReply::Parsed::Whole) return;
  if (used > data.size()) abort();
  // Bytes after a reply must not affect it, and a truncated reply must be reported as incomplete.
  if (RedisReply::parse(data.substr(0, used), again, usedAgain) != RedisReply::Parsed::Whole || usedAgain != used || again.text != reply.text || again.items != reply.items) abort();
  if (RedisReply::parse(data.substr(0, used - 1), again, usedAgain) == RedisReply::Parsed::Whole) abort();
}

/** Feeds a peer's answers to a client with reads and writes in flight: only valid status frames may complete a request. */
void fuzzAnswers(std::string_view data) {
  int ends[2];
  if (data.size() > 60'000 || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return;
  Fd far(ends[1]);
  TcpPipe pipe{Fd(ends[0])};
  static char memory[4096];
  static Task task;
  for (uint64_t i = 0; i < 8; i++) {
    Slice slice;
    slice.local = reinterpret_cast<uint64_t>(memory) + i * 512;
    slice.length = 8 + i;
    slice.task = &task;
    slice.write = i % 2 == 1;
    pipe.push(slice);
  }
  pipe.send();
  if (send(far.get(), data.data(), data.size(), MSG_NOSIGNAL) != ssize_t(data.size())) return;
  far.reset();
  size_t through = 0, statuses = 0;
  for (size_t at = 0; (at = data.find(std::string_view("\0\0\0\0VTCM", 8), at)) != std::string_view::npos; at += 8) statuses++;
  auto done = [&](const Slice&) { through++; };
  while (pipe.receive(done, false) == TcpPipe::Step::Moved) {
  }
  if (through > statuses || through + pipe.takeSlices().size() != 8) abort();
}

void fuzzAddress(std::string_view data) {
  auto parts = splitHostPort(std::string(data));
  if (parts && parts->second != 0 && splitHostPort(joinHostPort(parts->first, parts->second)) != parts && parts->first.find_first_of("[]:") == std::string::npos) abort();
}

struct Target {
  const char* name;
  void (*run)(std::string_view);
  std::vector<std::string> seeds;
};

const std::vector<Target>& targets() {
  static const std::string record =
      R"({"server_name":"a","name":"a","protocol":"tcp","devices":[{"name":"d","lid":1,"gid":"x"}],"buffers":[{"addr":140306788904976,"length":1048576,"name":"cpu:0","rkey":[1],"local":{"slot":3,"generation":5,"path":"/p","offset":0,"inode":9}}],"tcp_data_port":16252,"tcp_proto_version":2,"host":{"pid":4,"nonce":"00"}})";
  static const std::string file = R"({"server_name":"a","protocol":"nvmeof","buffers":[{"length":10,"file_path":"/f","local_path_map":{"m":"/g"}}]})";
  static const std::vector<Target> all = {
      {"json", fuzzJson, {record, R"([1,-2,3.5e10,-0.0,"\u00e9\ud83d\ude00\n",true,null,{"a":[]}])"}},
      {"descriptor", fuzzDescriptor, {record, file}},
      {"header", fuzzHeader, {std::string("\x08\0\0\0\0\0\0\0\xe8\x03\0\0\0\0\0\0\x81\0\0\0\0\0\0\0", 24), std::string("\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xb1\0\0\0\0\0\0\0", 24)}},
      {"session", fuzzFileSession, {std::string("\x0b\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xb1\0\0\0\0\0\0\0nvmeof/disk\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x91\0\0\0\0\0\0\0abcdefgh\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x90\0\0\0\0\0\0\0", 91)}},
      {"frame", fuzzFrame, {wire::putFrame({true, 1, "{}\n"}), wire::putFrame({false, 0, "{\"a\":1}"})}},
      {"http", fuzzHttp, {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}},
      {"redis", fuzzRedis, {"$5\r\nhello\r\n", "*2\r\n$1\r\na\r\n$-1\r\n", "+OK\r\n", "-ERR no\r\n", ":12\r\n", "$-1\r\n"}},
      {"answers", fuzzAnswers, {std::string("\0\0\0\0VTCM12345678\0\0\0\0VTCM\0\0\0\0VTCM1234567890\0\0\0\0VTCM", 50), std::string("\1\0\0\0VTCM", 8)}},
      {"address", fuzzAddress, {"127.0.0.1:80", "[::1]:8080", "host"}},
  };
  return all;
}

}  // namespace

#ifdef SVC_LIBFUZZER
// FUZZ_TARGET names one target; "list" prints them all (with -runs=0 the program then ends at once).
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char* wanted = getenv("FUZZ_TARGET");
  static const Target* chosen = [] {
    const Target* found = nullptr;
    for (const auto& target : targets()) {
      if (wanted != nullptr && strcmp(wanted, "list") == 0) printf("target %s\n", target.name);
      if (wanted != nullptr && strcmp(wanted, target.name) == 0) found = &target;
    }
    return found;
  }();
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (chosen != nullptr) chosen->run(input);
  else
    for (const auto& target : targets()) target.run(input);
  return 0;
}
#else
int main(int argc, char** argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 100'000;
  unsigned seed = argc > 2 ? unsigned(atoi(argv[2])) : std::random_device{}();
  printf("seed %u\n", seed);
  fflush(stdout);
  std::mt19937 random(seed);
  for (const auto& target : targets()) {
    std::vector<std::string> corpus = target.seeds;
    for (int i = 0; i < rounds; i++) {
      std::string data = corpus[random() % corpus.size()];
      for (unsigned change = random() % 6; change > 0 && !data.empty(); change--) {
        size_t at = random() % data.size();
        switch (random() % 5) {
          case 0: data[at] = char(random()); break;
          case 1: data.erase(at, 1 + random() % 8); break;
          case 2: data.insert(at, data.substr(random() % data.size(), random() % 16)); break;
          case 3: data[at] ^= char(1 << random() % 8); break;
          default: data.insert(at, 1, "{}[]\",:0123456789\r\n\\-eu"[random() % 23]);
        }
      }
      target.run(data);
      if (random() % 64 == 0 && data.size() < 4096 && corpus.size() < 256) corpus.push_back(data);
    }
    printf("%s: %d inputs\n", target.name, rounds);
  }
}
#endif
