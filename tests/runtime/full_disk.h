// A file system on which one file meets a full disk; everything else is real.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"

namespace hyper::runtime::testing {

// Appending to a file whose path holds `target` fails at the `fails_at`-th time (from 1).
class FullDisk final : public FileSystem {
 public:
  FullDisk(std::string target, int fails_at) : target_(std::move(target)), fails_at_(fails_at) {}
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    HYPER_ASSIGN_OR_RETURN(auto file, real_->Create(path));
    if (path.find(target_) == std::string::npos) return file;
    class Full final : public WritableFile {
     public:
      Full(std::unique_ptr<WritableFile> file, int fails_at)
          : file_(std::move(file)), fails_at_(fails_at) {}
      Status Append(std::span<const std::byte> data) override {
        return ++appended_ == fails_at_ ? ResourceExhausted("disk full") : file_->Append(data);
      }
      Status Sync() override { return file_->Sync(); }
      Status Close() override { return file_->Close(); }

     private:
      std::unique_ptr<WritableFile> file_;
      int appended_ = 0;
      int fails_at_;
    };
    return std::unique_ptr<WritableFile>(std::make_unique<Full>(std::move(file), fails_at_));
  }
  Result<std::string> ReadAll(const std::string& path, int64_t limit) override {
    return real_->ReadAll(path, limit);
  }
  Status ReadAt(const std::string& path, int64_t offset, std::span<std::byte> out) override {
    return real_->ReadAt(path, offset, out);
  }
  Result<int64_t> Size(const std::string& path) override { return real_->Size(path); }
  bool Exists(const std::string& path) override { return real_->Exists(path); }
  Status MakeDirs(const std::string& path) override { return real_->MakeDirs(path); }
  Status Rename(const std::string& from, const std::string& to) override {
    return real_->Rename(from, to);
  }
  Status RemoveAll(const std::string& path) override { return real_->RemoveAll(path); }
  Result<std::vector<std::string>> List(const std::string& path) override {
    return real_->List(path);
  }

 private:
  FileSystem* real_ = RealFileSystem();
  std::string target_;
  int fails_at_;
};

}  // namespace hyper::runtime::testing
