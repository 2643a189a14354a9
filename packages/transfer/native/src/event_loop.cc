// The epoll thread: level-triggered events, posted work, and a tick every 50 ms or when a deadline is due.
#include "event_loop.h"

#include <pthread.h>
#include <sys/eventfd.h>

namespace svc {

namespace {
constexpr int EVENTS_PER_WAIT = 128;
}

EventLoop::EventLoop(std::function<void()> onTick, uint64_t pollUs)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), onTick_(std::move(onTick)), spin_(pollUs * 1000) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event);
}

EventLoop::~EventLoop() { stop(); }

void EventLoop::start() {
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "svc-io");
}

void EventLoop::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) < 0 && errno != EAGAIN) return;
  if (thread_.joinable()) thread_.join();
}

bool EventLoop::add(int fd, uint32_t events, EventHandler* handler) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = handler;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void EventLoop::change(int fd, uint32_t events, EventHandler* handler) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = handler;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

void EventLoop::post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    posted_.push_back(std::move(work));
  }
  uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) < 0) return;
}

void EventLoop::tickBy(uint64_t deadlineNs) {
  uint64_t known = dueNs_.load(std::memory_order_relaxed);
  while (deadlineNs < known && !dueNs_.compare_exchange_weak(known, deadlineNs)) {
  }
  // Otherwise the thread checks the deadline before it sleeps.
  if (deadlineNs >= known || deadlineNs >= nextTickNs_.load()) return;
  uint64_t one = 1;
  if (write(wake_.get(), &one, sizeof one) < 0) return;
}

int EventLoop::waitMs() const {
  const uint64_t next = std::min(nextTickNs_.load(), dueNs_.load()), now = nowNs();
  return now >= next ? 0 : int((next - now) / NS_PER_MS) + 1;
}

void EventLoop::run() {
  epoll_event events[EVENTS_PER_WAIT];
  nextTickNs_ = nowNs() + TICK_MS * NS_PER_MS;
  std::vector<std::function<void()>> work;
  int count = 0;
  while (true) {
    // Another event often follows soon, so we spin first; if none came, the thread has just slept.
    auto next = [&] { return (count = epoll_wait(epoll_.get(), events, EVENTS_PER_WAIT, 0)) != 0; };
    if (count == 0 || !spin_.until(next)) count = epoll_wait(epoll_.get(), events, EVENTS_PER_WAIT, waitMs());
    for (int i = 0; i < count; i++) {
      if (auto* handler = static_cast<EventHandler*>(events[i].data.ptr)) {
        handler->onEvents(events[i].events);
        continue;
      }
      uint64_t drained;
      if (read(wake_.get(), &drained, sizeof drained) < 0) continue;
    }
    bool stopping;
    {
      std::lock_guard lock(mutex_);
      work.swap(posted_);
      stopping = stopping_;
    }
    for (auto& each : work) each();
    work.clear();
    retired_.clear();
    if (stopping) return;
    if (uint64_t now = nowNs(); now >= nextTickNs_ || now >= dueNs_) {
      // Waiters whose deadline has not passed announce it again in the tick.
      dueNs_ = ~0ull;
      onTick_();
      nextTickNs_ = nowNs() + TICK_MS * NS_PER_MS;
    }
  }
}

}  // namespace svc
