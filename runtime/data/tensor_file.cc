#include "runtime/data/tensor_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <unistd.h>

#include "base/strings.h"
#include "runtime/data/inflate.h"

namespace hyper::runtime {
namespace {

using ir::DType;

// Element count of `dims`, empty on overflow or a negative extent.
std::optional<int64_t> CheckedCount(const ir::Dims& dims) {
  int64_t count = 1;
  for (const int64_t extent : dims) {
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count)) return std::nullopt;
  }
  if (count > std::numeric_limits<int64_t>::max() / 16) return std::nullopt;
  return count;
}

Status CheckSize(const std::string& path, const ir::TensorType& type, int64_t offset,
                 size_t file_bytes) {
  const std::optional<int64_t> count = CheckedCount(type.dims);
  const int64_t have = static_cast<int64_t>(file_bytes) - offset;
  if (!count || *count * ir::DTypeBytes(type.dtype) != have) {
    return DataLoss(fmt::format(
        "'{}' announces {} ({} bytes) but holds {} bytes of data", path, type.ToString(),
        count ? fmt::format("{}", *count * ir::DTypeBytes(type.dtype)) : "more than addressable",
        have));
  }
  return Status::Ok();
}

Result<DType> IdxType(int code, const std::string& path) {
  switch (code) {
    case 0x08: return DType::kU8;
    case 0x09: return DType::kI8;
    case 0x0B: return DType::kI16;
    case 0x0C: return DType::kI32;
    case 0x0D: return DType::kF32;
    case 0x0E: return DType::kF64;
    default:
      return InvalidArgument(fmt::format(
          "'{}' has IDX element type 0x{:02X}; known are 08 (uint8), 09 (int8), 0B (int16), "
          "0C (int32), 0D (float32), 0E (float64)",
          path, code));
  }
}

// The value of `key` in the text of a NumPy header dictionary, up to the end of the text.
std::optional<std::string_view> HeaderValue(std::string_view header, std::string_view key) {
  for (const char quote : {'\'', '"'}) {
    const std::string quoted = fmt::format("{}{}{}", quote, key, quote);
    const size_t at = header.find(quoted);
    if (at == std::string_view::npos) continue;
    std::string_view rest = header.substr(at + quoted.size());
    const size_t start = rest.find_first_not_of(" :");
    if (start == std::string_view::npos) return std::nullopt;
    return rest.substr(start);
  }
  return std::nullopt;
}

Result<DType> NpyType(std::string_view value, const std::string& path) {
  const size_t end = value.size() < 2 ? std::string_view::npos : value.find(value[0], 1);
  const std::string_view text =
      end == std::string_view::npos ? std::string_view{} : value.substr(1, end - 1);
  constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"<f4", DType::kF32}, {"<f8", DType::kF64}, {"<f2", DType::kF16}, {"|i1", DType::kI8},
      {"<i2", DType::kI16}, {"<i4", DType::kI32}, {"<i8", DType::kI64}, {"|u1", DType::kU8},
      {"<u2", DType::kU16}, {"<u4", DType::kU32}, {"<u8", DType::kU64}, {"|b1", DType::kBool}};
  for (const auto& [name, dtype] : kTypes) {
    if (text == name) return dtype;
  }
  std::string known;
  for (const auto& [name, dtype] : kTypes) known += fmt::format(" {}", name);
  return InvalidArgument(
      fmt::format("'{}' has NumPy element type '{}'; read are{}", path, text, known));
}

Result<ir::Dims> NpyShape(std::string_view value, const std::string& path) {
  const Status bad = DataLoss(fmt::format("'{}': the NumPy header has no readable shape", path));
  const size_t close = value.find(')');
  if (value.empty() || value[0] != '(' || close == std::string_view::npos) return bad;
  ir::Dims dims;
  std::string_view rest = value.substr(1, close - 1);
  while (true) {
    const size_t start = rest.find_first_not_of(" ,");
    if (start == std::string_view::npos) return dims;
    rest.remove_prefix(start);
    int64_t extent = 0;
    size_t digits = 0;
    for (; digits < rest.size() && rest[digits] >= '0' && rest[digits] <= '9'; ++digits) {
      if (__builtin_mul_overflow(extent, int64_t{10}, &extent) ||
          __builtin_add_overflow(extent, int64_t{rest[digits] - '0'}, &extent)) {
        return bad;
      }
    }
    if (digits == 0) return bad;
    dims.push_back(extent);
    rest.remove_prefix(digits);
  }
}

// Magic number, rank and extents of an IDX file.
struct IdxHeader {
  ir::TensorType type;
  size_t bytes = 0;
};
constexpr int64_t kLargestIdxHeader = 4 + 4 * 255;

Result<IdxHeader> ParseIdxHeader(std::span<const std::byte> bytes, const std::string& path) {
  const auto byte_at = [&](size_t i) { return std::to_integer<int>(bytes[i]); };
  if (bytes.size() < 4 || byte_at(0) != 0 || byte_at(1) != 0) {
    return InvalidArgument(
        fmt::format("'{}' is not an IDX file: it does not start with two zero "
                    "bytes, a type and a rank",
                    path));
  }
  IdxHeader header;
  HYPER_ASSIGN_OR_RETURN(header.type.dtype, IdxType(byte_at(2), path));
  const size_t rank = static_cast<size_t>(byte_at(3));
  header.bytes = 4 + 4 * rank;
  if (rank == 0 || bytes.size() < header.bytes) {
    return DataLoss(
        fmt::format("'{}' announces {} dims but has {} bytes", path, rank, bytes.size()));
  }
  for (size_t d = 0; d < rank; ++d) {
    int64_t extent = 0;
    for (size_t i = 0; i < 4; ++i) extent = extent * 256 + byte_at(4 + 4 * d + i);
    header.type.dims.push_back(extent);
  }
  if (!CheckedCount(header.type.dims)) {
    return DataLoss(
        fmt::format("'{}' announces {}, more than addressable", path, header.type.ToString()));
  }
  return header;
}

// The header says how much there is to inflate.
Result<FileBytes> InflateIdx(const std::string& path) {
  HYPER_ASSIGN_OR_RETURN(const FileBytes begin, InflateBegin(path, kLargestIdxHeader));
  HYPER_ASSIGN_OR_RETURN(const IdxHeader header, ParseIdxHeader(begin.bytes, path));
  return InflateFile(path, static_cast<int64_t>(header.bytes) +
                               *CheckedCount(header.type.dims) * ir::DTypeBytes(header.type.dtype));
}

}  // namespace

Result<ir::HostTensor> ParseIdx(const FileBytes& file, const std::string& path) {
  const std::span<const std::byte> bytes = file.bytes;
  HYPER_ASSIGN_OR_RETURN(const IdxHeader header, ParseIdxHeader(bytes, path));
  const ir::TensorType& type = header.type;
  const size_t offset = header.bytes;
  HYPER_RETURN_IF_ERROR(CheckSize(path, type, static_cast<int64_t>(offset), bytes.size()));
  const std::span<const std::byte> data = bytes.subspan(offset);
  const size_t width = static_cast<size_t>(ir::DTypeBytes(type.dtype));
  if (width == 1) return ir::HostTensor(type, file.owner, data.data());
  // IDX is big-endian.
  auto swapped = std::make_shared<std::vector<std::byte>>(data.begin(), data.end());
  for (size_t i = 0; i < swapped->size(); i += width) {
    std::reverse(swapped->begin() + static_cast<ptrdiff_t>(i),
                 swapped->begin() + static_cast<ptrdiff_t>(i + width));
  }
  return ir::HostTensor(type, swapped, swapped->data());
}

namespace {

// Of any rank.
Result<ir::HostTensor> ParseNpyTensor(const FileBytes& file, const std::string& path) {
  const std::span<const std::byte> bytes = file.bytes;
  constexpr std::string_view kMagic = "\x93NUMPY";
  if (bytes.size() < 10 || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return InvalidArgument(fmt::format("'{}' is not a NumPy .npy file", path));
  }
  const int version = std::to_integer<int>(bytes[6]);
  if (version < 1 || version > 3) {
    return InvalidArgument(
        fmt::format("'{}' has .npy version {}; read are 1, 2 and 3", path, version));
  }
  size_t header_start = 10;
  size_t header_bytes = std::to_integer<size_t>(bytes[8]) | std::to_integer<size_t>(bytes[9]) << 8;
  if (version > 1) {
    header_start = 12;
    if (bytes.size() < header_start) return DataLoss(fmt::format("'{}' ends early", path));
    header_bytes |= std::to_integer<size_t>(bytes[10]) << 16 | std::to_integer<size_t>(bytes[11])
                                                                   << 24;
  }
  if (bytes.size() - header_start < header_bytes) {
    return DataLoss(fmt::format("'{}' ends inside its header", path));
  }
  const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + header_start,
                                header_bytes);
  const auto descr = HeaderValue(header, "descr");
  const auto order = HeaderValue(header, "fortran_order");
  const auto shape = HeaderValue(header, "shape");
  if (!descr || !order || !shape) {
    return DataLoss(
        fmt::format("'{}': the NumPy header lacks descr, fortran_order or shape", path));
  }
  if (!order->starts_with("False")) {
    return InvalidArgument(
        fmt::format("'{}' is stored in Fortran order; save it with "
                    "numpy.ascontiguousarray",
                    path));
  }
  ir::TensorType type;
  HYPER_ASSIGN_OR_RETURN(type.dtype, NpyType(*descr, path));
  HYPER_ASSIGN_OR_RETURN(type.dims, NpyShape(*shape, path));
  const size_t offset = header_start + header_bytes;
  HYPER_RETURN_IF_ERROR(CheckSize(path, type, static_cast<int64_t>(offset), bytes.size()));
  const std::span<const std::byte> data = bytes.subspan(offset);
  if (reinterpret_cast<uintptr_t>(data.data()) % static_cast<size_t>(ir::DTypeBytes(type.dtype))) {
    return ir::HostTensor(type, data);  // an unaligned copy of an old writer
  }
  return ir::HostTensor(type, file.owner, data.data());
}

}  // namespace

Result<ir::HostTensor> ParseNpy(const FileBytes& file, const std::string& path) {
  HYPER_ASSIGN_OR_RETURN(ir::HostTensor tensor, ParseNpyTensor(file, path));
  if (tensor.type().dims.empty()) {
    return InvalidArgument(
        fmt::format("'{}' holds a scalar; expected one entry per sample along "
                    "the first dim",
                    path));
  }
  return tensor;
}

Result<ir::HostTensor> ReadIdxFile(const std::string& path) {
  const bool plain = path.ends_with(".gz") || ::access(path.c_str(), F_OK) == 0;
  const std::string name =
      plain || ::access((path + ".gz").c_str(), F_OK) != 0 ? path : path + ".gz";
  HYPER_ASSIGN_OR_RETURN(const FileBytes file,
                         name.ends_with(".gz") ? InflateIdx(name) : MapFile(name));
  return ParseIdx(file, name);
}

Result<ir::HostTensor> ReadNpyFile(const std::string& path) {
  HYPER_ASSIGN_OR_RETURN(const FileBytes file, MapFile(path));
  return ParseNpy(file, path);
}

Result<ir::HostTensor> ReadNpyTensor(const std::string& path) {
  HYPER_ASSIGN_OR_RETURN(const FileBytes file, MapFile(path));
  return ParseNpyTensor(file, path);
}

}  // namespace hyper::runtime
