// A snapshot as a file: written in pieces and read in place, so that memory has no copy of the index.
#pragma once
#include "index.h"

namespace svc {

// Writes a new file without syncing it, and returns its size. Throws with the error's name first ("ENOSPC: ...").
u64 saveTo(const std::string& path, const Index& index, std::string_view note);
// Returns false with `problem` set; the index must not be used then.
bool loadFrom(const std::string& path, Index& index, std::string& note, std::string& problem);

}  // namespace svc
