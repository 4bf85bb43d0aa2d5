// Reader and writer of the safetensors format (checkpoint.md). Thread safety: pure functions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "ir/types.h"

namespace hyper::runtime {

struct SafetensorsEntry {
  std::string name;
  ir::TensorType type;
  // Fills the row-major bytes of the tensor; called once, in order of the entries.
  std::function<Status(std::span<std::byte> out)> read;
};

struct WrittenFile {
  int64_t bytes = 0;
  std::string sha256;
};

// Creates `path`, streams the entries and syncs; at most one tensor is in memory at a time.
Result<WrittenFile> WriteSafetensors(FileSystem* fs, const std::string& path,
                                     const std::vector<SafetensorsEntry>& entries);

// Tensors of a whole file in memory, which they share. kDataLoss, naming `path`, when the header
// does not describe the data exactly.
Result<std::map<std::string, ir::HostTensor>> ParseSafetensors(
    std::shared_ptr<const std::string> file, const std::string& path);

}  // namespace hyper::runtime
