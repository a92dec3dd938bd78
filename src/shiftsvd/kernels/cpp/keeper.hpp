// Ends the process when its anonymous memory exceeds a limit, also while another thread holds the GIL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shiftsvd {

// Starts the watcher, once in a process. When anonymous memory exceeds the present amount by `limit` bytes, the watcher
// writes `line` to stderr and ends the process with code 1. Returns false if the system does not report memory.
bool keep(std::int64_t limit, const std::string &line);

// Sets the temporary folders to remove when the watcher ends the process.
void discard(const std::vector<std::string> &folders);

}  // namespace shiftsvd
