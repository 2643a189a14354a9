// Runs a function at the end of a scope, even when memory runs out.
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
