// SHA-256 (FIPS 180-4) of bytes, of pieces and of files; as lower-case hex.
// Thread safety: functions are pure; a Sha256 belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"

namespace hyper {

// Over pieces, for files that are hashed while they are written or read.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void Update(std::span<const std::byte> data);
  std::string FinishHex();  // call once, last

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Sha256Hex(std::span<const std::byte> data);
std::string Sha256Hex(std::string_view data);

// Reads `bytes` bytes of a file piece by piece and gives each piece to `consume`, which may be
// empty, once it is hashed. Errors are those of the file system and of `consume`.
Result<std::string> HashFile(FileSystem* fs, const std::string& path, int64_t bytes,
                             const std::function<Status(std::span<const std::byte>)>& consume = {});

}  // namespace hyper
