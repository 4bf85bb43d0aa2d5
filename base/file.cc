#include "base/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hyper {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  Status Append(std::span<const std::byte> data) override {
    while (!data.empty()) {
      const ssize_t written = ::write(fd_.get(), data.data(), data.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(errno, "cannot write", path_);
      }
      data = data.subspan(static_cast<size_t>(written));
    }
    return Status::Ok();
  }
  Status Sync() override {
    if (::fsync(fd_.get()) != 0) return ErrnoStatus(errno, "cannot sync", path_);
    return Status::Ok();
  }
  Status Close() override {
    if (::close(fd_.Release()) != 0) return ErrnoStatus(errno, "cannot close", path_);
    return Status::Ok();
  }

 private:
  Descriptor fd_;
  std::string path_;
};

class PosixFileSystem : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> Create(const std::string& path) override {
    // O_NONBLOCK: a named pipe without a reader is an error instead of waited for.
    const int fd =
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666);
    if (fd < 0) return ErrnoStatus(errno, "cannot create", path);
    return std::unique_ptr<WritableFile>(std::make_unique<PosixWritableFile>(fd, path));
  }

  Result<std::string> ReadAll(const std::string& path, int64_t limit) override {
    HYPER_ASSIGN_OR_RETURN(const int64_t size, Size(path));
    if (size > limit) {
      return InvalidArgument(
          fmt::format("'{}' has {} bytes, at most {} are accepted", path, size, limit));
    }
    std::string data(static_cast<size_t>(size), '\0');
    HYPER_RETURN_IF_ERROR(
        ReadAt(path, 0, std::as_writable_bytes(std::span(data.data(), data.size()))));
    return data;
  }

  Status ReadAt(const std::string& path, int64_t offset, std::span<std::byte> out) override {
    // O_NONBLOCK: a named pipe is refused instead of waited for.
    const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) return ErrnoStatus(errno, "cannot open", path);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "cannot read", path);
    HYPER_RETURN_IF_ERROR(CheckRegular(info.st_mode, path));
    while (!out.empty()) {
      const ssize_t got = ::pread(fd.get(), out.data(), out.size(), offset);
      if (got < 0) {
        if (errno == EINTR) continue;
        return ErrnoStatus(errno, "cannot read", path);
      }
      if (got == 0) {
        return DataLoss(
            fmt::format("'{}' ends at byte {}, {} more expected", path, offset, out.size()));
      }
      out = out.subspan(static_cast<size_t>(got));
      offset += got;
    }
    return Status::Ok();
  }

  Result<int64_t> Size(const std::string& path) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, "cannot open", path);
    HYPER_RETURN_IF_ERROR(CheckRegular(info.st_mode, path));
    return static_cast<int64_t>(info.st_size);
  }

  bool Exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }

  Status MakeDirs(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return ErrnoStatus(error.value(), "cannot create folder", path);
    return Status::Ok();
  }

  Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      return ErrnoStatus(errno, fmt::format("cannot rename '{}' to", from), to);
    }
    const Descriptor folder(::open(DirName(to).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() >= 0 && ::fsync(folder.get()) != 0 && errno != EINVAL) {
      return ErrnoStatus(errno, "cannot sync folder of", to);
    }
    return Status::Ok();
  }

  Status RemoveAll(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return ErrnoStatus(error.value(), "cannot remove", path);
    return Status::Ok();
  }

  Result<std::vector<std::string>> List(const std::string& path) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
         it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) return ErrnoStatus(error.value(), "cannot list", path);
    std::sort(names.begin(), names.end());
    return names;
  }
};

}  // namespace

Status ErrnoStatus(int error, std::string_view what, const std::string& path) {
  const std::string message = fmt::format("{} '{}': {}", what, path, std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR: return NotFound(message);
    case ENOMEM:
    case ENOSPC:
    case EDQUOT: return ResourceExhausted(message);
    default: return FailedPrecondition(message);
  }
}

Status CheckRegular(mode_t mode, const std::string& path) {
  if (S_ISREG(mode)) return Status::Ok();
  const char* kind = S_ISDIR(mode)                    ? "a folder"
                     : S_ISFIFO(mode)                 ? "a named pipe"
                     : S_ISSOCK(mode)                 ? "a socket"
                     : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                                      : "something else";
  return InvalidArgument(fmt::format("'{}' is not a regular file but {}", path, kind));
}

FileSystem* RealFileSystem() {
  static PosixFileSystem file_system;
  return &file_system;
}

Status WriteFile(FileSystem* fs, const std::string& path, std::string_view data) {
  HYPER_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs->Create(path));
  HYPER_RETURN_IF_ERROR(file->Append(std::as_bytes(std::span(data.data(), data.size()))));
  HYPER_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

Status WriteFileAtomic(FileSystem* fs, const std::string& path, std::string_view data) {
  const std::string temporary = path + ".tmp";
  // The new name would take the place of a device or a pipe, too.
  if (fs->Exists(path)) HYPER_RETURN_IF_ERROR(fs->Size(path).status());
  HYPER_RETURN_IF_ERROR(WriteFile(fs, temporary, data));
  return fs->Rename(temporary, path);
}

std::string JoinPath(std::string_view folder, std::string_view name) {
  if (folder.empty() || (!name.empty() && name.front() == '/')) return std::string(name);
  if (folder.back() == '/') return fmt::format("{}{}", folder, name);
  return fmt::format("{}/{}", folder, name);
}

std::string DirName(std::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(path.substr(0, std::max<size_t>(slash, 1)));
}

std::string BaseName(std::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace hyper
