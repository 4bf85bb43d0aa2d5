#include "ir/types.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "ir/float16.h"

namespace hyper::ir {
namespace {

struct DTypeInfo {
  std::string_view name;
  int bytes;
};
// In enum order.
constexpr std::array<DTypeInfo, 13> kDTypes = {{
    {"f32", 4},
    {"f64", 8},
    {"f16", 2},
    {"bf16", 2},
    {"i8", 1},
    {"i16", 2},
    {"i32", 4},
    {"i64", 8},
    {"u8", 1},
    {"u16", 2},
    {"u32", 4},
    {"u64", 8},
    {"bool", 1},
}};

template <typename T>
T Load(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace

std::string_view DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t DTypeBytes(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].bytes; }

bool IsFloat(DType dtype) { return dtype <= DType::kBF16; }

bool IsInteger(DType dtype) { return dtype >= DType::kI8 && dtype <= DType::kU64; }

int64_t ElementCount(std::span<const int64_t> dims) {
  int64_t count = 1;
  for (int64_t d : dims) count *= d;
  return count;
}

Dims RowMajorStrides(std::span<const int64_t> dims) {
  Dims strides(dims.size());
  int64_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= dims[i];
  }
  return strides;
}

std::string TensorType::ToString() const {
  std::string text(DTypeName(dtype));
  text += '[';
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(dims[i]);
  }
  text += ']';
  return text;
}

HostTensor::HostTensor(TensorType type, std::span<const std::byte> data) : type_(std::move(type)) {
  HYPER_CHECK(
      static_cast<int64_t>(data.size()) == type_.bytes(),
      "tensor of type " + type_.ToString() + " given " + std::to_string(data.size()) + " bytes");
  // operator new aligns for every element type.
  std::shared_ptr<std::byte[]> copy(new std::byte[std::max<size_t>(data.size(), 1)]);
  if (!data.empty()) std::memcpy(copy.get(), data.data(), data.size());
  data_ = copy.get();
  owner_ = std::move(copy);
}

HostTensor::HostTensor(TensorType type, std::shared_ptr<const void> owner, const std::byte* data)
    : type_(std::move(type)), owner_(std::move(owner)), data_(data) {}

HostTensor HostTensor::Zeros(TensorType type) {
  const auto bytes = static_cast<size_t>(type.bytes());
  std::shared_ptr<std::byte[]> memory(new std::byte[std::max<size_t>(bytes, 1)]());
  const std::byte* data = memory.get();
  return HostTensor(std::move(type), std::move(memory), data);
}

HostTensor HostTensor::ScalarI64(int64_t value) {
  return FromVector<int64_t>(DType::kI64, {}, {value});
}

HostTensor HostTensor::ScalarF32(float value) {
  return FromVector<float>(DType::kF32, {}, {value});
}

double HostTensor::ElementAsDouble(int64_t index) const {
  switch (type_.dtype) {
    case DType::kF32: return Load<float>(data_, index);
    case DType::kF64: return Load<double>(data_, index);
    case DType::kF16: return HalfToDouble(Load<uint16_t>(data_, index));
    case DType::kBF16: return BFloat16ToDouble(Load<uint16_t>(data_, index));
    case DType::kU64: return static_cast<double>(Load<uint64_t>(data_, index));
    default: return static_cast<double>(ElementAsInt(index));
  }
}

int64_t HostTensor::ElementAsInt(int64_t index) const {
  switch (type_.dtype) {
    case DType::kI8: return Load<int8_t>(data_, index);
    case DType::kI16: return Load<int16_t>(data_, index);
    case DType::kI32: return Load<int32_t>(data_, index);
    case DType::kI64: return Load<int64_t>(data_, index);
    case DType::kU8: return Load<uint8_t>(data_, index);
    case DType::kU16: return Load<uint16_t>(data_, index);
    case DType::kU32: return Load<uint32_t>(data_, index);
    case DType::kU64: return static_cast<int64_t>(Load<uint64_t>(data_, index));
    case DType::kBool: return Load<uint8_t>(data_, index) != 0 ? 1 : 0;
    default: {
      const double x = ElementAsDouble(index);
      if (std::isnan(x)) return 0;
      if (x >= 0x1p63) return INT64_MAX;
      if (x <= -0x1p63) return INT64_MIN;
      return static_cast<int64_t>(x);
    }
  }
}

bool HostTensor::operator==(const HostTensor& other) const {
  if (type_ != other.type_ || defined() != other.defined()) return false;
  if (!defined() || data_ == other.data_ || type_.elements() == 0) return true;
  return std::memcmp(data_, other.data_, static_cast<size_t>(type_.bytes())) == 0;
}

}  // namespace hyper::ir
