// Threads for what may block: recovery of connections, notifications, long copies. Work of one key stays in order.
// What waits is bounded by those who post: one work for each batch, lane and segment at a time.
#pragma once
#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace svc {

class WorkPool {
 public:
  static constexpr size_t THREADS = 4;
  ~WorkPool() { stop(); }
  /** False after stop(): the work will not run. Threads start when they are first needed. */
  bool post(uint64_t key, std::function<void()> work);
  /** Runs what was posted, then ends the threads. */
  void stop();

 private:
  struct Lane {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> work;
    std::thread thread;
    bool stopping = false;
  };
  static void run(Lane& lane);
  std::array<Lane, THREADS> lanes_;
};

}  // namespace svc
