// Sends prepared frames over several connections, a number of them in progress on each, and counts the answers, with little CPU.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

struct Connection {
  int fd = -1;
  std::vector<std::string_view> frames;
  std::size_t sent = 0, answered = 0;
  std::vector<std::chrono::steady_clock::time_point> times;
  std::string in;
};

// Returns the length of the first answer in the buffer; 0 while it is incomplete. `bad` counts error answers.
std::size_t answerSize(std::string_view in, bool http, std::uint64_t& bad) {
  if (!http) {
    if (in.size() < 16) return 0;
    std::uint32_t body = 0, attachment = 0;
    std::memcpy(&body, in.data() + 8, 4);
    std::memcpy(&attachment, in.data() + 12, 4);
    const std::size_t whole = 16 + std::size_t{body} + attachment;
    if (in.size() < whole) return 0;
    if (in[2] != 0) ++bad;
    return whole;
  }
  const std::size_t end = in.find("\r\n\r\n");
  if (end == std::string_view::npos) return 0;
  const std::size_t at = in.find("Content-Length: ");
  if (at > end) std::abort();
  const std::size_t whole = end + 4 + std::strtoull(in.data() + at + 16, nullptr, 10);
  if (in.size() < whole) return 0;
  if (in.substr(9, 3) != "200") ++bad;
  return whole;
}

void fill(Connection& connection, std::size_t depth) {
  std::string batch;
  while (connection.sent < connection.frames.size() && connection.sent - connection.answered < depth) {
    batch.append(connection.frames[connection.sent++]);
    connection.times.push_back(std::chrono::steady_clock::now());
  }
  for (std::size_t at = 0; at < batch.size();) {
    const ssize_t wrote = send(connection.fd, batch.data() + at, batch.size() - at, MSG_NOSIGNAL);
    if (wrote <= 0) std::abort();
    at += static_cast<std::size_t>(wrote);
  }
}

}  // namespace

// store-raw FILE PORT CONNECTIONS DEPTH rpc|http; the file contains repeated pairs of a u32 size and a frame, which the connections share.
int main(int, char** words) {
  const int file = open(words[1], O_RDONLY);
  struct stat found {};
  if (file < 0 || fstat(file, &found) != 0) return 1;
  const auto size = static_cast<std::size_t>(found.st_size);
  const char* data = static_cast<const char*>(mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0));
  const bool http = std::string_view(words[5]) == "http";
  std::vector<Connection> connections(std::strtoul(words[3], nullptr, 10));
  const std::size_t depth = std::strtoul(words[4], nullptr, 10);
  std::size_t total = 0;
  for (std::size_t at = 0; at < size; ++total) {
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, data + at, 4);
    connections[total % connections.size()].frames.emplace_back(data + at + 4, bytes);
    at += 4 + bytes;
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(words[2])));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<pollfd> polls;
  for (Connection& connection : connections) {
    connection.fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection.fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 1;
    const int yes = 1;
    setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    polls.push_back({connection.fd, POLLIN, 0});
  }
  std::uint64_t answered = 0, bad = 0;
  std::vector<double> took;
  took.reserve(total);
  std::vector<char> buffer(1 << 20);
  const auto begun = std::chrono::steady_clock::now();
  for (Connection& connection : connections) fill(connection, depth);
  while (answered < total) {
    if (poll(polls.data(), polls.size(), 60'000) <= 0) return 1;
    for (std::size_t i = 0; i < polls.size(); ++i) {
      if (polls[i].revents == 0) continue;
      Connection& connection = connections[i];
      const ssize_t got = recv(connection.fd, buffer.data(), buffer.size(), 0);
      if (got <= 0) return 1;
      connection.in.append(buffer.data(), static_cast<std::size_t>(got));
      std::size_t at = 0;
      const auto now = std::chrono::steady_clock::now();
      while (const std::size_t whole = answerSize(std::string_view(connection.in).substr(at), http, bad)) {
        at += whole;
        took.push_back(std::chrono::duration<double, std::micro>(now - connection.times[connection.answered++]).count());
        ++answered;
      }
      connection.in.erase(0, at);
      fill(connection, depth);
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  std::sort(took.begin(), took.end());
  std::printf("{\"perSecond\":%f,\"seconds\":%f,\"p50\":%f,\"p99\":%f,\"bad\":%llu}\n", static_cast<double>(total) / seconds, seconds, took[took.size() / 2],
              took[took.size() * 99 / 100], static_cast<unsigned long long>(bad));
}
