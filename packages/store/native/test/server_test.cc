// The server thread over real sockets: whole, cut, pipelined and malformed frames, slow readers, and a stop in the middle.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "server/server.h"
#include "check.h"

namespace svc {

namespace {

constexpr u32 existFunction = 1, putFunction = 2, scriptFunction = 3, argsHash = 77;

int dial(u16 port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval patience{60, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  REQUIRE(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

std::string frameOf(u32 seq, u32 function, const std::string& payload) {
  std::string out(4, '\0');
  out[0] = static_cast<char>(wireMagic);
  const auto put = [&](auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(seq);
  put(function);
  put(static_cast<u32>(5 + payload.size()));
  put(u32{0});
  put(argsHash);
  put(u8{0});
  return out + payload;
}

std::string text(const std::string& value) { return std::string(1, static_cast<char>(value.size())) + value; }

// Reads whole responses, in the order of the requests.
void readAnswers(int fd, u32 first, u32 count) {
  std::string in;
  char buffer[4096];
  for (u32 seq = first; seq < first + count;) {
    const ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    REQUIRE(got > 0);
    in.append(buffer, static_cast<std::size_t>(got));
    while (in.size() >= responseBytes) {
      u32 found = 0, body = 0;
      std::memcpy(&found, in.data() + 4, 4);
      std::memcpy(&body, in.data() + 8, 4);
      if (in.size() < responseBytes + body) break;
      REQUIRE(found == seq);
      in.erase(0, responseBytes + body);
      ++seq;
    }
  }
  REQUIRE(in.empty());
}

void client(u16 port, u64 seed, u32 rounds) {
  Chance chance(seed);
  for (u32 round = 0; round < rounds; ++round) {
    const int fd = dial(port);
    const u64 kind = below(chance, 4);
    std::string bytes;
    const u32 count = 1 + static_cast<u32>(below(chance, 300));
    for (u32 seq = 0; seq < count; ++seq) {
      const std::string key = "key-" + std::to_string(below(chance, 1000));
      const u32 function = below(chance, 10) == 0 ? scriptFunction : existFunction;
      bytes += frameOf(seq, function, text(key) + text(""));
    }
    if (kind == 0) for (u32 i = 0; i < 20; ++i) bytes[below(chance, bytes.size())] = static_cast<char>(chance());
    if (kind == 1) bytes.resize(below(chance, bytes.size()));
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t part = 1 + below(chance, 3000);
      const ssize_t sent = send(fd, bytes.data() + at, std::min(part, bytes.size() - at), MSG_NOSIGNAL);
      if (sent <= 0) break;
      at += static_cast<std::size_t>(sent);
    }
    // Clients of the other kinds close early, so their answers may meet a closed connection.
    if (kind == 2) readAnswers(fd, 0, count);
    close(fd);
  }
}

}  // namespace

void testServer(Chance& chance, u32 rounds) {
  for (const bool disk : {false, true}) {
    std::string folder = (std::filesystem::temp_directory_path() / "svc-server-XXXXXX").string();
    REQUIRE(mkdtemp(folder.data()) != nullptr);
    {
      std::optional<Worker> script(std::in_place);
      Server* answering = nullptr;
      std::atomic<bool> recovered{false};
      Log::Options options;
      options.folder = folder;
      options.disk = disk;
      options.fileBytes = 100'000;
      Limits limits;
      limits.framesPerIteration = 7;
      limits.unsentBytes = 2'000;
      limits.snapshotBytes = 50'000;
      Server server(Settings(), limits, options, [&](Event event) {
        if (event.kind == EventKind::recovered) recovered = true;
        if (event.kind != EventKind::request && event.kind != EventKind::unknown) return;
        script->add([&answering, event] { answering->answer(event.id, event.seq, event.kind == EventKind::unknown ? 11 : 0, "an answer", event.kind == EventKind::unknown); });
      });
      answering = &server;
      server.operations.declare(existFunction, {argsHash, 1, Op::existKey, true, std::string("\x87\0", 2), ""});
      server.operations.declare(putFunction, {argsHash, 2, Op::putStart, true, std::string("\x87\0", 2), ""});
      server.operations.declare(scriptFunction, {argsHash, 3, Op::script, true, "", ""});
      const u16 port = server.listen("127.0.0.1", 0);
      server.start();
      while (!recovered) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      server.change([&] {
        SegmentSpec spec;
        spec.id = {1, 1};
        spec.name = spec.endpoint = "host:1";
        spec.sizeBytes = 1 << 30;
        REQUIRE(server.store.holders.mount(spec, {1, 1}) == 0);
      });
      std::vector<std::thread> clients;
      for (u32 i = 0; i < 4; ++i) clients.emplace_back(client, port, chance(), rounds * 25);
      for (u32 i = 0; i < 2'000; ++i)
        server.change([&] {
          u32 index = 0;
          server.store.puts.start(server.store.holders.clientOf({1, 1}), 0, "key-" + std::to_string(i), 100, PutPolicy(), "", index);
          server.store.puts.end({1, 1}, 0, "key-" + std::to_string(i), std::nullopt);
          server.reportDurable();
        });
      for (std::thread& each : clients) each.join();
      REQUIRE(server.with([&] { return server.store.table.size(); }) == 2'000);
      const int left = dial(port);
      server.stop();
      // The worker's last answers need a server that still exists.
      script.reset();
      close(left);
    }
    // A recovery from the log finds every object.
    Store again(Settings(), 1);
    again.at(1'000);
    Log::Options options;
    options.folder = folder;
    Log log(options, [] {});
    log.recover(again);
    REQUIRE(again.table.size() == 2'000);
    std::filesystem::remove_all(folder);
  }
}

}  // namespace svc
