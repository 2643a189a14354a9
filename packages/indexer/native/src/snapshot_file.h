// A snapshot as a file: written piece by piece and read where it lies, so that no copy of the index is in memory.
#pragma once
#include "index.h"

namespace svc {

// Into a new file, not synced; its size. Throws with the error's name first ("ENOSPC: ...").
u64 saveTo(const std::string& path, const Index& index, std::string_view note);
// False with `problem` set; the index is not to be used then.
bool loadFrom(const std::string& path, Index& index, std::string& note, std::string& problem);

}  // namespace svc
