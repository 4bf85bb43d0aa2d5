#include "runtime/safetensors.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/sha256.h"

namespace hyper::runtime {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::pair<ir::DType, std::string_view> kNames[] = {
    {ir::DType::kF32, "F32"},   {ir::DType::kF64, "F64"}, {ir::DType::kF16, "F16"},
    {ir::DType::kBF16, "BF16"}, {ir::DType::kI8, "I8"},   {ir::DType::kI16, "I16"},
    {ir::DType::kI32, "I32"},   {ir::DType::kI64, "I64"}, {ir::DType::kU8, "U8"},
    {ir::DType::kU16, "U16"},   {ir::DType::kU32, "U32"}, {ir::DType::kU64, "U64"},
    {ir::DType::kBool, "BOOL"}};

std::string_view NameOf(ir::DType dtype) {
  for (const auto& [known, name] : kNames) {
    if (known == dtype) return name;
  }
  return {};
}

std::optional<ir::DType> FromName(std::string_view text) {
  for (const auto& [dtype, name] : kNames) {
    if (name == text) return dtype;
  }
  return std::nullopt;
}

// One header entry; empty when it does not describe bytes of the `data_bytes` that follow.
std::optional<std::pair<ir::TensorType, int64_t>> ParseEntry(const Json& entry,
                                                             int64_t data_bytes) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2) {
    return std::nullopt;
  }
  const std::optional<ir::DType> dtype = FromName(entry["dtype"].get<std::string>());
  if (!dtype) return std::nullopt;
  ir::TensorType type{*dtype, {}};
  int64_t bytes = ir::DTypeBytes(*dtype);
  for (const Json& extent : entry["shape"]) {
    if (!extent.is_number_integer() || extent.get<int64_t>() < 0 ||
        __builtin_mul_overflow(bytes, extent.get<int64_t>(), &bytes)) {
      return std::nullopt;
    }
    type.dims.push_back(extent.get<int64_t>());
  }
  const Json& begin = entry["data_offsets"][0];
  const Json& end = entry["data_offsets"][1];
  if (!begin.is_number_integer() || !end.is_number_integer()) return std::nullopt;
  const int64_t from = begin.get<int64_t>();
  const int64_t to = end.get<int64_t>();
  if (from < 0 || to < from || to > data_bytes || to - from != bytes) return std::nullopt;
  return std::pair(type, from);
}

}  // namespace

Result<WrittenFile> WriteSafetensors(FileSystem* fs, const std::string& path,
                                     const std::vector<SafetensorsEntry>& entries) {
  Json header = Json::object();
  int64_t offset = 0;
  int64_t largest = 0;
  for (const SafetensorsEntry& entry : entries) {
    const int64_t bytes = entry.type.bytes();
    header[entry.name] = {{"dtype", NameOf(entry.type.dtype)},
                          {"shape", entry.type.dims},
                          {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
    largest = std::max(largest, bytes);
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  HYPER_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs->Create(path));
  Sha256 hash;
  const auto append = [&](std::span<const std::byte> data) {
    hash.Update(data);
    return file->Append(data);
  };
  HYPER_RETURN_IF_ERROR(append(std::as_bytes(std::span(&length, 1))));
  HYPER_RETURN_IF_ERROR(append(std::as_bytes(std::span(text.data(), text.size()))));
  std::vector<std::byte> buffer(static_cast<size_t>(largest));
  for (const SafetensorsEntry& entry : entries) {
    const std::span<std::byte> data(buffer.data(), static_cast<size_t>(entry.type.bytes()));
    HYPER_RETURN_IF_ERROR(entry.read(data));
    HYPER_RETURN_IF_ERROR(append(data));
  }
  HYPER_RETURN_IF_ERROR(file->Sync());
  HYPER_RETURN_IF_ERROR(file->Close());
  return WrittenFile{static_cast<int64_t>(8 + text.size()) + offset, hash.FinishHex()};
}

Result<std::map<std::string, ir::HostTensor>> ParseSafetensors(
    std::shared_ptr<const std::string> file, const std::string& path) {
  uint64_t length = 0;
  if (file->size() < 8) return DataLoss(fmt::format("'{}' is no safetensors file", path));
  std::memcpy(&length, file->data(), 8);
  if (length > file->size() - 8) {
    return DataLoss(
        fmt::format("'{}' announces a header of {} bytes but has {}", path, length, file->size()));
  }
  const Json header = Json::parse(file->data() + 8, file->data() + 8 + length, nullptr, false);
  if (!header.is_object()) {
    return DataLoss(fmt::format("'{}': the header is not a JSON object", path));
  }
  const std::byte* data = reinterpret_cast<const std::byte*>(file->data()) + 8 + length;
  const int64_t data_bytes = static_cast<int64_t>(file->size() - 8 - length);
  std::map<std::string, ir::HostTensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto parsed = ParseEntry(entry, data_bytes);
    if (!parsed) {
      return DataLoss(
          fmt::format("'{}': the entry of tensor '{}' does not fit the file", path, name));
    }
    const auto& [type, begin] = *parsed;
    // Other writers may align less than the type needs.
    if (reinterpret_cast<uintptr_t>(data + begin) %
            static_cast<size_t>(ir::DTypeBytes(type.dtype)) !=
        0) {
      tensors[name] = ir::HostTensor(type, {data + begin, static_cast<size_t>(type.bytes())});
    } else {
      tensors[name] = ir::HostTensor(type, file, data + begin);
    }
  }
  return tensors;
}

}  // namespace hyper::runtime
