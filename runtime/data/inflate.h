// Compressed data files. Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"

namespace hyper::runtime {

// All of a gzip file (several members allowed). kDataLoss when it is damaged or ends early,
// kInvalidArgument above `limit` bytes.
Result<FileBytes> InflateFile(const std::string& path, int64_t limit);

}  // namespace hyper::runtime
