// Mapped files and the rules for where external data may lie (part of tensor_data.h).
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/file.h"
#include "frontend/onnx/tensor_data.h"

namespace hyper::onnx_frontend {

namespace fs = std::filesystem;

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string reason = std::strerror(errno);
    return NotFound(fmt::format("cannot open '{}': {}", path, reason));
  }
  struct stat info = {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return InvalidArgument(fmt::format("'{}' is not a regular file", path));
  }
  std::shared_ptr<MappedFile> file(new MappedFile());
  file->size_ = info.st_size;
  if (info.st_size > 0) {
    void* data = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const std::string reason = std::strerror(errno);
      ::close(fd);
      return ResourceExhausted(fmt::format("cannot map '{}': {}", path, reason));
    }
    file->data_ = static_cast<const std::byte*>(data);
  }
  ::close(fd);
  return std::shared_ptr<const MappedFile>(std::move(file));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

Result<std::string> ExternalData::Resolve(const std::string& location) const {
  if (location.empty()) return InvalidArgument("external data names no file");
  if (location.find('\0') != std::string::npos) {
    return InvalidArgument("external data location contains a zero byte");
  }
  const fs::path relative(location);
  if (relative.is_absolute()) {
    return InvalidArgument(fmt::format(
        "external data location '{}' is absolute; it must be relative to the model's folder",
        location));
  }
  std::error_code error;
  const fs::path folder = fs::canonical(folder_.empty() ? fs::path(".") : fs::path(folder_), error);
  if (error) {
    return NotFound(fmt::format("model folder '{}': {}", folder_, error.message()));
  }
  for (const fs::path& part : relative) {
    if (part == "..") {
      return InvalidArgument(fmt::format(
          "external data location '{}' (resolves to '{}') contains '..'; it must stay inside the "
          "model's folder",
          location, (folder / relative).lexically_normal().string()));
    }
  }
  const fs::path resolved = fs::canonical(folder / relative, error);
  if (error) {
    return NotFound(
        fmt::format("external data file '{}': {}", (folder / relative).string(), error.message()));
  }
  const auto [end, _] =
      std::mismatch(folder.begin(), folder.end(), resolved.begin(), resolved.end());
  if (end != folder.end()) {
    return InvalidArgument(
        fmt::format("external data location '{}' resolves to '{}', outside the model's folder '{}'",
                    location, resolved.string(), folder.string()));
  }
  if (fs::hard_link_count(resolved, error) > 1 && !error) {
    return InvalidArgument(fmt::format(
        "external data file '{}' has several hard links; copy it into the model's folder",
        resolved.string()));
  }
  return resolved.string();
}

Result<ExternalData::Bytes> ExternalData::Find(const onnx::TensorProto& tensor) {
  std::string location;
  int64_t offset = 0;
  int64_t length = -1;
  for (const onnx::StringStringEntryProto& entry : tensor.external_data()) {
    const std::string& value = entry.value();
    auto number = [&](int64_t* out) {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *out);
      return error == std::errc() && end == value.data() + value.size() && *out >= 0;
    };
    if (entry.key() == "location") {
      location = value;
    } else if ((entry.key() == "offset" && !number(&offset)) ||
               (entry.key() == "length" && !number(&length))) {
      return InvalidArgument(
          fmt::format("external data {} '{}' is not a size", entry.key(), value));
    }
  }
  HYPER_ASSIGN_OR_RETURN(const std::string path, Resolve(location));
  std::shared_ptr<const MappedFile>& file = files_[path];
  if (file == nullptr) {
    auto opened = MappedFile::Open(path);
    if (!opened.ok()) {
      files_.erase(path);
      return opened.status();
    }
    file = *opened;
  }
  if (offset > file->size() || (length >= 0 && length > file->size() - offset)) {
    return InvalidArgument(
        fmt::format("external data at offset {} with {} bytes lies beyond the "
                    "{} bytes of '{}'",
                    offset, length, file->size(), path));
  }
  return Bytes{file, file->data() + offset, length >= 0 ? length : file->size() - offset};
}

}  // namespace hyper::onnx_frontend
