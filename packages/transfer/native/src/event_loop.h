// One thread that waits on epoll and runs handlers, posted work and a tick; none of them may block.
#pragma once
#include <sys/epoll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base.h"
#include "spin.h"

namespace svc {

class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void onEvents(uint32_t events) = 0;
};

class EventLoop {
 public:
  static constexpr uint64_t TICK_MS = 50;

  /** `pollUs` is how long the loop spins for more events before it sleeps. */
  EventLoop(std::function<void()> onTick, uint64_t pollUs);
  ~EventLoop();
  void start();
  /** Runs the posted work, then ends the thread. May be called twice. */
  void stop();

  bool add(int fd, uint32_t events, EventHandler* handler);
  void change(int fd, uint32_t events, EventHandler* handler);
  void remove(int fd);
  /** Can be called from any thread. Work posted after stop() does not run. */
  void post(std::function<void()> work);
  /** Requests a tick at this time, unless one comes earlier. Can be called from any thread. */
  void tickBy(uint64_t deadlineNs);
  /** Keeps a handler that closed itself alive until the events already fetched have been handled. Loop thread only. */
  void retire(std::shared_ptr<EventHandler> handler) { retired_.push_back(std::move(handler)); }

 private:
  void run();
  int waitMs() const;
  Fd epoll_, wake_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  std::vector<std::shared_ptr<EventHandler>> retired_;
  std::function<void()> onTick_;
  /** The next regular tick, and the earliest requested one. */
  std::atomic<uint64_t> nextTickNs_{0}, dueNs_{~0ull};
  Spin spin_;
  bool stopping_ = false;
};

}  // namespace svc
