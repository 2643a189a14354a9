// Work that reads the whole index on another thread and resolves a promise: queries continue, changes of the index wait.
#pragma once
#include <atomic>
#include <functional>

#include "node_values.h"

namespace svc {

// Held from the request of such work until it is done.
class Stillness {
 public:
  void hold() { readers_.fetch_add(1, std::memory_order_relaxed); }
  void release() {
    readers_.fetch_sub(1, std::memory_order_release);
    readers_.notify_all();
  }
  // Callers in src/ wait without blocking (write-barrier.ts); this makes a forgotten wait slow instead of wrong.
  void over() const {
    for (int now = readers_.load(std::memory_order_acquire); now != 0; now = readers_.load(std::memory_order_acquire)) readers_.wait(now);
  }

 private:
  std::atomic<int> readers_{0};
};

class Later {
 public:
  // `read` runs on the other thread; `give` converts its result to a JavaScript value.
  static napi_value begin(const Arguments& args, Stillness& still, std::function<void()> read, std::function<napi_value(const Arguments&)> give) {
    auto work = std::make_unique<Later>(args, still, std::move(read), std::move(give));
    napi_value promise = nullptr, name = args.of(std::string_view("svc_indexer"));
    check(napi_create_promise(args.env, &work->deferred_, &promise), "promise");
    check(napi_create_reference(args.env, args.self, 1, &work->self_), "reference");
    check(napi_create_async_work(args.env, nullptr, name, run, done, work.get(), &work->work_), "work");
    still.hold();
    if (napi_queue_async_work(args.env, work->work_) != napi_ok) {
      still.release();
      throw std::runtime_error("no thread takes the work");
    }
    work.release();
    return promise;
  }

  Later(const Arguments& args, Stillness& still, std::function<void()> read, std::function<napi_value(const Arguments&)> give)
      : args_(args), still_(still), read_(std::move(read)), give_(std::move(give)) {}

 private:
  static void run(napi_env, void* data) {
    auto& work = *static_cast<Later*>(data);
    try {
      work.read_();
    } catch (const std::exception& error) {
      work.problem_ = error.what();
    }
    work.still_.release();
  }
  static void done(napi_env env, napi_status, void* data) {
    const std::unique_ptr<Later> work(static_cast<Later*>(data));
    napi_value value = nullptr;
    try {
      if (work->problem_.empty()) value = work->give_(work->args_);
    } catch (const std::exception& error) {
      work->problem_ = error.what();
    }
    if (value != nullptr) {
      napi_resolve_deferred(env, work->deferred_, value);
    } else {
      napi_value message = nullptr, error = nullptr;
      napi_create_string_utf8(env, work->problem_.c_str(), NAPI_AUTO_LENGTH, &message);
      napi_create_error(env, nullptr, message, &error);
      napi_reject_deferred(env, work->deferred_, error);
    }
    napi_delete_reference(env, work->self_);
    napi_delete_async_work(env, work->work_);
  }

  Arguments args_;  // only its environment is used, since the values belong to the call
  Stillness& still_;
  std::function<void()> read_;
  std::function<napi_value(const Arguments&)> give_;
  std::string problem_;
  napi_deferred deferred_ = nullptr;
  napi_ref self_ = nullptr;
  napi_async_work work_ = nullptr;
};

}  // namespace svc
