// The rules for where external data may lie (part of tensor_data.h).
#include <fmt/format.h>

#include <charconv>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "frontend/onnx/tensor_data.h"

namespace hyper::onnx_frontend {

namespace fs = std::filesystem;

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

Result<FileBytes> ExternalData::Find(const onnx::TensorProto& tensor) {
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
  auto known = files_.find(path);
  if (known == files_.end()) {
    HYPER_ASSIGN_OR_RETURN(FileBytes file, MapFile(path));
    known = files_.emplace(path, std::move(file)).first;
  }
  const FileBytes& file = known->second;
  const int64_t size = static_cast<int64_t>(file.bytes.size());
  if (offset > size || length > size - offset) {
    return InvalidArgument(
        fmt::format("external data at offset {}{} lies beyond the {} bytes of '{}'", offset,
                    length < 0 ? "" : fmt::format(" with {} bytes", length), size, path));
  }
  return FileBytes{file.owner,
                   file.bytes.subspan(static_cast<size_t>(offset),
                                      static_cast<size_t>(length < 0 ? size - offset : length))};
}

}  // namespace hyper::onnx_frontend
