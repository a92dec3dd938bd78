// Ends the process once its anonymous memory passes a limit, whatever holds the GIL.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shiftsvd {

// Starts the watcher, once in a process: beyond `limit` bytes above what there is now, `line` is written to stderr and
// the process ends with code 1. False where the system does not tell what a process has.
bool keep(std::int64_t limit, const std::string &line);

// Temporary folders to remove when the watcher ends the process.
void discard(const std::vector<std::string> &folders);

}  // namespace shiftsvd
