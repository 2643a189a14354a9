// Fuzz targets of every parser of bytes from others: also a driver of its own, for hosts without libFuzzer.
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
  if (inside(1000, 100, header->address, header->size) && (header->address < 1000 || header->size > 100 || header->address + header->size > 1100)) abort();
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
  // In pieces, since that is how it arrives.
  for (size_t at = 0; at < data.size(); at += 7)
    if (reader.take(data.substr(at, 7)) != HttpAnswerReader::State::More) return;
  reader.end();
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
      {"json", fuzzJson, {record, R"([1,-2,3.5e10,"\u00e9\ud83d\ude00\n",true,null,{"a":[]}])"}},
      {"descriptor", fuzzDescriptor, {record, file}},
      {"header", fuzzHeader, {std::string("\x08\0\0\0\0\0\0\0\xe8\x03\0\0\0\0\0\0\x81\0\0\0\0\0\0\0", 24)}},
      {"frame", fuzzFrame, {wire::putFrame({true, 1, "{}\n"}), wire::putFrame({false, 0, "{\"a\":1}"})}},
      {"http", fuzzHttp, {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"}},
      {"address", fuzzAddress, {"127.0.0.1:80", "[::1]:8080", "host"}},
  };
  return all;
}

}  // namespace

#ifdef SVC_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char* wanted = getenv("FUZZ_TARGET");
  for (const auto& target : targets())
    if (wanted == nullptr || strcmp(wanted, target.name) == 0) target.run({reinterpret_cast<const char*>(data), size});
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
