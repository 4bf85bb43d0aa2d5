// Incremental SHA-256, for files that are hashed while they are written or read.
// Thread safety: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/file.h"
#include "base/status.h"

namespace hyper::codegen {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::span<const std::byte> data);
  std::string FinishHex();  // lower-case; call once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Reads `bytes` bytes of a file piece by piece; `consume` may be empty. Returns the hash.
Result<std::string> HashFile(FileSystem* fs, const std::string& path, int64_t bytes,
                             const std::function<Status(std::span<const std::byte>)>& consume = {});

}  // namespace hyper::codegen
