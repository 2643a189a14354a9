// What is done whenever a function ends, also without memory.
#pragma once

namespace svc {

template <typename Body>
class AtEnd {
 public:
  explicit AtEnd(const Body& body) : body_(body) {}
  ~AtEnd() { body_(); }
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;

 private:
  const Body& body_;
};

}  // namespace svc
