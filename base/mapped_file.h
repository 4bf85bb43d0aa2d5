// Read-only files as memory: mapped, so that processes of one host share one copy and nothing is
// read before it is touched.
// Thread safety: the bytes are immutable; MapFile may be called from several threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace hyper {

// Immutable bytes and what keeps them in memory.
struct FileBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

// Maps the whole of a regular file of any size (an empty one gives no bytes). Errors name the file
// and the system's reason: kNotFound, kInvalidArgument (not a regular file), kResourceExhausted
// (no address space) or kFailedPrecondition. The file must not be cut while it is in use.
Result<FileBytes> MapFile(const std::string& path);

}  // namespace hyper
