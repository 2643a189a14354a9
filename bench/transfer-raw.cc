// The machine's own performance for comparison: acknowledged sockets, memcpy, copies between processes, io_uring file reads.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr size_t AREA = 64 << 20;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/** Prints operations per second and the median in microseconds. */
void measure(size_t length, double seconds, const std::function<void(size_t)>& once) {
  std::vector<double> times;
  size_t places = AREA / length, i = 0;
  for (size_t warm = 0; warm < std::min<size_t>(places, 200); warm++) once(warm % places * length);
  double begun = now();
  while (now() - begun < seconds) {
    double at = now();
    once(i++ % places * length);
    times.push_back(now() - at);
  }
  double took = now() - begun;
  std::sort(times.begin(), times.end());
  printf("{\"perSecond\":%.1f,\"p50\":%.9f}\n", double(times.size()) / took, times[times.size() / 2]);
}

char* area() { return static_cast<char*>(mmap(nullptr, AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)); }

bool fill(int fd, char* to, size_t size) {
  while (size > 0) {
    ssize_t n = recv(fd, to, size, 0);
    if (n <= 0) return false;
    to += n;
    size -= size_t(n);
  }
  return true;
}

void tcp(size_t length, double seconds) {
  int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  bind(listener, reinterpret_cast<sockaddr*>(&where), size);
  listen(listener, 1);
  getsockname(listener, reinterpret_cast<sockaddr*>(&where), &size);
  pid_t child = fork();
  if (child == 0) {
    char* sink = area();
    int fd = accept(listener, nullptr, nullptr);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    uint64_t header[3];
    while (fill(fd, reinterpret_cast<char*>(header), sizeof header) && fill(fd, sink + header[1], header[0]) && send(fd, header, 8, 0) == 8) {
    }
    _exit(0);
  }
  char* source = area();
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (connect(fd, reinterpret_cast<sockaddr*>(&where), size) != 0) exit(1);
  measure(length, seconds, [&](size_t at) {
    uint64_t header[3] = {length, at, 1};
    iovec parts[2] = {{header, sizeof header}, {source + at, length}};
    size_t left = sizeof header + length, index = 0;
    while (left > 0) {
      ssize_t n = writev(fd, parts + index, int(2 - index));
      if (n <= 0) exit(1);
      left -= size_t(n);
      for (size_t took = size_t(n); took > 0 && index < 2;) {
        size_t take = std::min(took, parts[index].iov_len);
        parts[index] = {static_cast<char*>(parts[index].iov_base) + take, parts[index].iov_len - take};
        took -= take;
        if (parts[index].iov_len == 0) index++;
      }
    }
    fill(fd, reinterpret_cast<char*>(header), 8);
  });
  close(fd);
  waitpid(child, nullptr, 0);
}

void copy(size_t length, double seconds) {
  char *from = area(), *to = area();
  measure(length, seconds, [&](size_t at) { memcpy(to + at, from + at, length); });
}

void processVm(size_t length, double seconds) {
  char *from = area(), *to = area();
  int ends[2];
  if (pipe(ends) != 0) exit(1);
  pid_t child = fork();
  if (child == 0) {
    // Touching the pages avoids copy-on-write at the first write.
    memset(to, 1, AREA);
    if (write(ends[1], "x", 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char ready;
  if (read(ends[0], &ready, 1) != 1) exit(1);
  measure(length, seconds, [&](size_t at) {
    iovec here{from + at, length}, there{to + at, length};
    if (process_vm_writev(child, &here, 1, &there, 1, 0) != ssize_t(length)) exit(1);
  });
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

/** Reads of `length`, `depth` at a time, which are awaited together like a batch of the engine. */
void ring(const char* path, size_t length, unsigned depth, double seconds) {
  io_uring_params params{};
  int fd = int(syscall(SYS_io_uring_setup, depth, &params)), file = open(path, O_RDONLY | O_DIRECT);
  size_t bytes = std::max(params.sq_off.array + params.sq_entries * 4, params.cq_off.cqes + params.cq_entries * unsigned(sizeof(io_uring_cqe)));
  auto* base = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING));
  auto* entries = static_cast<io_uring_sqe*>(mmap(nullptr, params.sq_entries * sizeof(io_uring_sqe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES));
  if (fd < 0 || file < 0) exit(1);
  auto at = [&](unsigned offset) { return reinterpret_cast<unsigned*>(base + offset); };
  char* memory = area();
  size_t round = 0, per = length * depth;
  measure(per, seconds, [&](size_t place) {
    (void)place;
    unsigned tail = *at(params.sq_off.tail);
    for (unsigned i = 0; i < depth; i++) {
      unsigned index = (tail + i) & *at(params.sq_off.ring_mask);
      memset(&entries[index], 0, sizeof(io_uring_sqe));
      size_t offset = (round * per + i * length) % AREA;
      entries[index].opcode = IORING_OP_READ;
      entries[index].fd = file;
      entries[index].addr = reinterpret_cast<uint64_t>(memory + offset);
      entries[index].len = unsigned(length);
      entries[index].off = offset;
      at(params.sq_off.array)[index] = index;
    }
    round++;
    std::atomic_ref<unsigned>(*at(params.sq_off.tail)).store(tail + depth, std::memory_order_release);
    if (syscall(SYS_io_uring_enter, fd, depth, depth, IORING_ENTER_GETEVENTS, nullptr, 0) < 0) exit(1);
    std::atomic_ref<unsigned>(*at(params.cq_off.head)).store(*at(params.cq_off.tail));
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::string mode = argv[1];
  size_t length = size_t(atoll(argv[2]));
  double seconds = atof(argv[3]);
  if (mode == "tcp") tcp(length, seconds);
  if (mode == "memcpy") copy(length, seconds);
  if (mode == "process_vm") processVm(length, seconds);
  if (mode == "ring") ring(argv[4], length, unsigned(atoi(argv[5])), seconds);
}
