// Threads for work that may block.
#include "work_pool.h"

#include <pthread.h>

namespace svc {

bool WorkPool::post(uint64_t key, std::function<void()> work) {
  Lane& lane = lanes_[key % THREADS];
  std::lock_guard lock(lane.mutex);
  if (lane.stopping) return false;
  lane.work.push_back(std::move(work));
  if (!lane.thread.joinable()) {
    lane.thread = std::thread([&lane] { run(lane); });
    pthread_setname_np(lane.thread.native_handle(), "svc-work");
  }
  lane.wake.notify_one();
  return true;
}

void WorkPool::run(Lane& lane) {
  std::unique_lock lock(lane.mutex);
  while (true) {
    lane.wake.wait(lock, [&] { return lane.stopping || !lane.work.empty(); });
    if (lane.work.empty()) return;
    auto work = std::move(lane.work.front());
    lane.work.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
  }
}

void WorkPool::stop() {
  for (auto& lane : lanes_) {
    {
      std::lock_guard lock(lane.mutex);
      lane.stopping = true;
      lane.wake.notify_one();
    }
    if (lane.thread.joinable()) lane.thread.join();
  }
}

}  // namespace svc
