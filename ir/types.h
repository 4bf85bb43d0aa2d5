// Element types, shapes, tensor types, ids and host tensors. Value types; thread-compatible.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hyper::ir {

enum class DType : uint8_t {
  kF32,
  kF64,
  kF16,
  kBF16,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64,
  kBool,
};

std::string_view DTypeName(DType dtype);  // "f32", "i64", "bool", ...
std::optional<DType> DTypeFromName(std::string_view name);
int64_t DTypeBytes(DType dtype);  // bool is one byte
bool IsFloat(DType dtype);
bool IsInteger(DType dtype);  // signed or unsigned, not bool

// Extents, outermost first; every extent is >= 0; rank 0 is a scalar.
using Dims = std::vector<int64_t>;

int64_t ElementCount(std::span<const int64_t> dims);  // 1 for rank 0
// Row-major strides in elements.
Dims RowMajorStrides(std::span<const int64_t> dims);

struct TensorType {
  DType dtype = DType::kF32;
  Dims dims;

  int rank() const { return static_cast<int>(dims.size()); }
  int64_t elements() const { return ElementCount(dims); }
  int64_t bytes() const { return elements() * DTypeBytes(dtype); }
  bool operator==(const TensorType&) const = default;
  std::string ToString() const;  // "f32[16,10]", "i64[]"
};

// Index of a value or node inside one Function. Ids stay valid while nodes are added or removed;
// they are never reused.
struct ValueId {
  int32_t index = -1;
  bool valid() const { return index >= 0; }
  auto operator<=>(const ValueId&) const = default;
};
struct NodeId {
  int32_t index = -1;
  bool valid() const { return index >= 0; }
  auto operator<=>(const NodeId&) const = default;
};

// An immutable row-major tensor in host memory; copies share the bytes.
class HostTensor {
 public:
  HostTensor() = default;
  // Takes a copy of `data`, whose size must equal type.bytes().
  HostTensor(TensorType type, std::span<const std::byte> data);
  // Shares memory owned by `owner` (for example a mapped file).
  HostTensor(TensorType type, std::shared_ptr<const void> owner, const std::byte* data);

  template <typename T>
  static HostTensor FromVector(DType dtype, Dims dims, const std::vector<T>& values) {
    return HostTensor({dtype, std::move(dims)}, std::as_bytes(std::span(values)));
  }
  static HostTensor Zeros(TensorType type);
  static HostTensor ScalarI64(int64_t value);
  static HostTensor ScalarF32(float value);

  bool defined() const { return data_ != nullptr || type_.elements() == 0; }
  const TensorType& type() const { return type_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(type_.bytes())}; }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), static_cast<size_t>(type_.elements())};
  }
  // Element as double / int64 whatever the dtype (f16 and bf16 included).
  double ElementAsDouble(int64_t index) const;
  int64_t ElementAsInt(int64_t index) const;
  // Bitwise equality of type and content.
  bool operator==(const HostTensor& other) const;

 private:
  TensorType type_;
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
};

}  // namespace hyper::ir
