// Texts that TypeScript keeps across restarts, by kind and id.
#pragma once
#include "common.h"

namespace svc {

struct Note {
  u8 kind = 0;
  std::string text;
};

// Owns the notes. The server's lock guards it.
class Notes : Part {
 public:
  explicit Notes(Common& common) : Part(common) {}

  void keep(u8 kind, const Uuid& id, std::string text) {
    journal.note(kind, id, text);
    replay(kind, id, std::move(text));
  }
  void drop(const Uuid& id) {
    if (notes_.erase(id) > 0) journal.noteGone(id);
  }
  const std::unordered_map<Uuid, Note, UuidHash>& all() const { return notes_; }
  void replay(u8 kind, const Uuid& id, std::string text) { notes_[id] = {kind, std::move(text)}; }
  void replayGone(const Uuid& id) { notes_.erase(id); }

 private:
  std::unordered_map<Uuid, Note, UuidHash> notes_;
};

}  // namespace svc
