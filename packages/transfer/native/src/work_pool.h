// Threads for work that may block: recovery of connections, notifications, long copies. Work with one key stays in order. Its queues are
// bounded by their callers: each batch, lane and segment posts at most one piece of work at a time.
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
  /** Returns false after stop(): the work will not run. Threads start on first use. */
  bool post(uint64_t key, std::function<void()> work);
  /** Runs the posted work, then ends the threads. */
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
