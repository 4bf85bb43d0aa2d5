// File access behind one interface, so that tests inject faults (full disk, short read) below the
// bundle, checkpoint and data code.
// Thread safety: FileSystem implementations are safe to use from several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "base/status.h"

namespace hyper {

class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Status Append(std::span<const std::byte> data) = 0;
  // Flushes to the device (fsync).
  virtual Status Sync() = 0;
  virtual Status Close() = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<WritableFile>> Create(const std::string& path) = 0;
  // Whole file; `limit` guards against reading something absurd (kInvalidArgument above it).
  virtual Result<std::string> ReadAll(const std::string& path, int64_t limit) = 0;
  // Exactly `out.size()` bytes from `offset`, kDataLoss when the file is shorter.
  virtual Status ReadAt(const std::string& path, int64_t offset, std::span<std::byte> out) = 0;
  virtual Result<int64_t> Size(const std::string& path) = 0;
  virtual bool Exists(const std::string& path) = 0;
  virtual Status MakeDirs(const std::string& path) = 0;
  // Atomic replace; syncs the parent folder so that the new name survives a crash.
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  virtual Status RemoveAll(const std::string& path) = 0;
  // Names (not paths) in a folder, sorted.
  virtual Result<std::vector<std::string>> List(const std::string& path) = 0;
};

// The status of a failed system call: "WHAT 'PATH': reason of ERROR". kNotFound without the file,
// kResourceExhausted without room, kFailedPrecondition otherwise.
Status ErrnoStatus(int error, std::string_view what, const std::string& path);

// kInvalidArgument that names the type of anything but a regular file: folder, named pipe, socket,
// device. `mode`: st_mode. Reading the others could wait for ever.
Status CheckRegular(mode_t mode, const std::string& path);

// The real one. Never null, lives for the whole process.
FileSystem* RealFileSystem();

// Create + Append + Sync + Close.
Status WriteFile(FileSystem* fs, const std::string& path, std::string_view data);
// Writes `path`.tmp and renames it, so that readers see the old or the new file, never a part.
// kInvalidArgument where `path` is anything but a regular file.
Status WriteFileAtomic(FileSystem* fs, const std::string& path, std::string_view data);

std::string JoinPath(std::string_view folder, std::string_view name);
std::string DirName(std::string_view path);
std::string BaseName(std::string_view path);

}  // namespace hyper
