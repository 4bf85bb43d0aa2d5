// Read-only files in memory: mapped, so that the ranks of a host share one copy, or inflated.
// Thread safety: the bytes are immutable; functions are safe from several threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace hyper::runtime {

struct FileBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

// kNotFound, kInvalidArgument (not a regular file) or kFailedPrecondition, naming the file. The
// file must not be truncated while it is in use.
Result<FileBytes> MapFile(const std::string& path);

// All of a gzip file (several members allowed). kDataLoss when it is damaged or ends early,
// kInvalidArgument above `limit` bytes.
Result<FileBytes> InflateFile(const std::string& path, int64_t limit);

}  // namespace hyper::runtime
