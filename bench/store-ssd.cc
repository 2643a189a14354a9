// The baselines of the SSD tier's bench: files written like an owner writes them, and queries to the master at a steady rate.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t mib = 1 << 20;

double secondsSince(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

double cpuSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

// Files of 1 MiB, each from separate memory, written under a temporary name and renamed, through the page cache or past it; prints MiB/s,
// and milliseconds of processor time per file.
int writeFiles(const std::string& folder, std::size_t count, std::size_t threads, bool isDirect) {
  const auto bytes = static_cast<char*>(mmap(nullptr, count * mib, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (bytes == MAP_FAILED) return 1;
  for (std::size_t at = 0; at < count * mib; at += sizeof at) std::memcpy(bytes + at, &at, sizeof at);
  mkdir(folder.c_str(), 0700);
  mkdir((folder + "/pending").c_str(), 0700);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (std::size_t at = next++; at < count; at = next++) {
      const std::string name = std::to_string(at), pending = folder + "/pending/" + name, place = folder + "/" + name;
      const int fd = open(pending.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (isDirect ? O_DIRECT : 0), 0600);
      if (write(fd, bytes + at * mib, mib) != static_cast<ssize_t>(mib)) failed = true;
      close(fd);
      if (rename(pending.c_str(), place.c_str()) != 0) failed = true;
    }
  };
  const auto begun = Clock::now();
  const double cpuBefore = cpuSeconds();
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < threads; ++i) all.emplace_back(work);
  for (std::thread& each : all) each.join();
  const double seconds = secondsSince(begun);
  std::printf("[%f,%f]\n", static_cast<double>(count) / seconds, (cpuSeconds() - cpuBefore) * 1000 / static_cast<double>(count));
  return failed ? 1 : 0;
}

// Syncs all files below and evicts them from the page cache; the files stay.
int forget(const std::string& folder) {
  sync();
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    fdatasync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
  }
  return 0;
}

// Sends the frame in the file once a millisecond until standard input ends; prints the latency of each in microseconds.
int ask(const char* path, std::uint16_t port) {
  char frame[4096];
  const int file = open(path, O_RDONLY);
  const ssize_t size = read(file, frame, sizeof frame);
  if (size <= 4) return 1;
  // Real-time priority, if it is permitted, keeps the process from waiting for a processor.
  sched_param first{};
  first.sched_priority = 1;
  const bool isFirst = sched_setscheduler(0, SCHED_FIFO, &first) == 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  constexpr timespec pace{0, 1'000'000};
  std::string times;
  for (pollfd input{0, POLLIN, 0}; poll(&input, 1, 0) == 0; nanosleep(&pace, nullptr)) {
    const auto begun = Clock::now();
    // The file contains the frame's length before the frame.
    if (send(fd, frame + 4, static_cast<std::size_t>(size) - 4, MSG_NOSIGNAL) != size - 4) return 1;
    char answer[4096];
    std::size_t got = 0, whole = 16;
    while (got < whole) {
      const ssize_t more = recv(fd, answer + got, sizeof answer - got, 0);
      if (more <= 0) return 1;
      got += static_cast<std::size_t>(more);
      std::uint32_t body = 0;
      if (got >= 16) std::memcpy(&body, answer + 8, sizeof body);
      whole = 16 + std::size_t{body};
    }
    times += (times.empty() ? "" : ",") + std::to_string(secondsSince(begun) * 1e6);
  }
  std::printf("{\"isFirst\":%s,\"micros\":[%s]}\n", isFirst ? "true" : "false", times.c_str());
  return 0;
}

}  // namespace

// store-ssd write FOLDER COUNT THREADS cached|direct | store-ssd ask FRAME PORT | store-ssd forget FOLDER
int main(int count, char** words) {
  if (count == 6 && std::string_view(words[1]) == "write")
    return writeFiles(words[2], std::strtoul(words[3], nullptr, 10), std::strtoul(words[4], nullptr, 10), std::string_view(words[5]) == "direct");
  if (count == 4 && std::string_view(words[1]) == "ask") return ask(words[2], static_cast<std::uint16_t>(std::atoi(words[3])));
  if (count == 3 && std::string_view(words[1]) == "forget") return forget(words[2]);
  return 2;
}
