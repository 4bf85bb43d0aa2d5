// Compressed data files. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"

namespace hyper::runtime {

// All of a gzip file (several members allowed). kDataLoss when it is damaged or ends early, or
// inflates to more than `limit` bytes: what a header announces, so that a small file cannot ask for
// much memory.
Result<FileBytes> InflateFile(const std::string& path, int64_t limit);

// The first `most` bytes of what it inflates to, fewer where there are no more.
Result<FileBytes> InflateBegin(const std::string& path, int64_t most);

}  // namespace hyper::runtime
