#include "frontend/onnx/tensor_data.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "frontend/onnx/refusal.h"
#include "ir/float16.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::TensorProto;

constexpr int64_t kShareBytes = 4096;  // smaller tensors are copied

struct OnnxType {
  int onnx;
  std::string_view name;
  int bits;  // 0: no fixed size
  std::optional<ir::DType> dtype;
};

constexpr std::array<OnnxType, 27> kTypes = {{
    {TensorProto::FLOAT, "float", 32, ir::DType::kF32},
    {TensorProto::UINT8, "uint8", 8, ir::DType::kU8},
    {TensorProto::INT8, "int8", 8, ir::DType::kI8},
    {TensorProto::UINT16, "uint16", 16, ir::DType::kU16},
    {TensorProto::INT16, "int16", 16, ir::DType::kI16},
    {TensorProto::INT32, "int32", 32, ir::DType::kI32},
    {TensorProto::INT64, "int64", 64, ir::DType::kI64},
    {TensorProto::STRING, "string", 0, std::nullopt},
    {TensorProto::BOOL, "bool", 8, ir::DType::kBool},
    {TensorProto::FLOAT16, "float16", 16, ir::DType::kF16},
    {TensorProto::DOUBLE, "double", 64, ir::DType::kF64},
    {TensorProto::UINT32, "uint32", 32, ir::DType::kU32},
    {TensorProto::UINT64, "uint64", 64, ir::DType::kU64},
    {TensorProto::COMPLEX64, "complex64", 64, std::nullopt},
    {TensorProto::COMPLEX128, "complex128", 128, std::nullopt},
    {TensorProto::BFLOAT16, "bfloat16", 16, ir::DType::kBF16},
    {TensorProto::FLOAT8E4M3FN, "float8e4m3fn", 8, std::nullopt},
    {TensorProto::FLOAT8E4M3FNUZ, "float8e4m3fnuz", 8, std::nullopt},
    {TensorProto::FLOAT8E5M2, "float8e5m2", 8, std::nullopt},
    {TensorProto::FLOAT8E5M2FNUZ, "float8e5m2fnuz", 8, std::nullopt},
    {TensorProto::UINT4, "uint4", 4, std::nullopt},
    {TensorProto::INT4, "int4", 4, std::nullopt},
    {TensorProto::FLOAT4E2M1, "float4e2m1", 4, std::nullopt},
    {TensorProto::FLOAT8E8M0, "float8e8m0", 8, std::nullopt},
    {TensorProto::UINT2, "uint2", 2, std::nullopt},
    {TensorProto::INT2, "int2", 2, std::nullopt},
    {TensorProto::UNDEFINED, "undefined", 0, std::nullopt},
}};

const OnnxType* FindType(int onnx_type) {
  for (const OnnxType& type : kTypes) {
    if (type.onnx == onnx_type) return &type;
  }
  return nullptr;
}

// Number of values that the typed field of this element type should hold for `elements`.
struct TypedField {
  std::string_view name;
  int64_t held = 0;
  int64_t expected = 0;
};
TypedField FieldOf(const TensorProto& t, int bits, int64_t elements) {
  switch (t.data_type()) {
    case TensorProto::FLOAT: return {"float_data", t.float_data_size(), elements};
    case TensorProto::COMPLEX64: return {"float_data", t.float_data_size(), 2 * elements};
    case TensorProto::DOUBLE: return {"double_data", t.double_data_size(), elements};
    case TensorProto::COMPLEX128: return {"double_data", t.double_data_size(), 2 * elements};
    case TensorProto::INT64: return {"int64_data", t.int64_data_size(), elements};
    case TensorProto::UINT32:
    case TensorProto::UINT64: return {"uint64_data", t.uint64_data_size(), elements};
    case TensorProto::STRING: return {"string_data", t.string_data_size(), elements};
    default: {  // int32_data; types below 8 bits are packed two or four per byte
      const int64_t expected = bits < 8 ? (elements * bits + 7) / 8 : elements;
      return {"int32_data", t.int32_data_size(), expected};
    }
  }
}

template <typename To, typename Field>
std::vector<std::byte> Narrow(const Field& field) {
  std::vector<std::byte> bytes(static_cast<size_t>(field.size()) * sizeof(To));
  for (int i = 0; i < field.size(); ++i) {
    const To value = static_cast<To>(field.Get(i));
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(To), &value, sizeof(To));
  }
  return bytes;
}

std::vector<std::byte> TypedBytes(const TensorProto& t, ir::DType dtype) {
  switch (dtype) {
    case ir::DType::kF32: return Narrow<float>(t.float_data());
    case ir::DType::kF64: return Narrow<double>(t.double_data());
    case ir::DType::kI64: return Narrow<int64_t>(t.int64_data());
    case ir::DType::kU32: return Narrow<uint32_t>(t.uint64_data());
    case ir::DType::kU64: return Narrow<uint64_t>(t.uint64_data());
    case ir::DType::kI32: return Narrow<int32_t>(t.int32_data());
    case ir::DType::kI16: return Narrow<int16_t>(t.int32_data());
    case ir::DType::kU16:
    case ir::DType::kF16:
    case ir::DType::kBF16: return Narrow<uint16_t>(t.int32_data());
    case ir::DType::kI8: return Narrow<int8_t>(t.int32_data());
    case ir::DType::kU8: return Narrow<uint8_t>(t.int32_data());
    case ir::DType::kBool: {
      std::vector<std::byte> bytes;
      for (int32_t v : t.int32_data()) bytes.push_back(static_cast<std::byte>(v != 0));
      return bytes;
    }
  }
  return {};
}

bool IsExternal(const TensorProto& t) { return t.data_location() == TensorProto::EXTERNAL; }

Result<FileBytes> ExternalBytes(const TensorProto& t, ExternalData* external) {
  if (external == nullptr) return InvalidArgument("its data lies in another file");
  return external->Find(t);
}

}  // namespace

std::optional<ir::DType> DTypeFromOnnx(int onnx_type) {
  const OnnxType* type = FindType(onnx_type);
  return type == nullptr ? std::nullopt : type->dtype;
}

int DTypeToOnnx(ir::DType dtype) {
  for (const OnnxType& type : kTypes) {
    if (type.dtype == dtype) return type.onnx;
  }
  return TensorProto::UNDEFINED;
}

std::string OnnxTypeName(int onnx_type) {
  const OnnxType* type = FindType(onnx_type);
  return type == nullptr ? fmt::format("type {}", onnx_type) : std::string(type->name);
}

Result<int64_t> CheckedElementCount(std::span<const int64_t> dims, int64_t limit) {
  bool zero = false;
  for (int64_t d : dims) {
    if (d < 0) return InvalidArgument(fmt::format("extent {} in {}", d, FormatDims(dims)));
    zero = zero || d == 0;
  }
  if (zero) return int64_t{0};
  int64_t count = 1;
  for (int64_t d : dims) {
    if (d > limit / count) {
      return ResourceExhausted(
          fmt::format("{} has more than {} elements", FormatDims(dims), limit));
    }
    count *= d;
  }
  return count;
}

Status CheckTensor(const TensorProto& t, ExternalData* external) {
  const OnnxType* type = FindType(t.data_type());
  if (type == nullptr || t.data_type() == TensorProto::UNDEFINED) {
    return InvalidArgument(fmt::format("element type {} is not one of ONNX's", t.data_type()));
  }
  const std::vector<int64_t> dims(t.dims().begin(), t.dims().end());
  HYPER_ASSIGN_OR_RETURN(const int64_t elements, CheckedElementCount(dims));
  const int64_t want = (elements * type->bits + 7) / 8;
  auto wrong_bytes = [&](std::string_view where, int64_t have) {
    return InvalidArgument(fmt::format("{} has {} bytes, but {} of {} needs {}", where, have,
                                       FormatDims(dims), type->name, want));
  };
  if (IsExternal(t)) {
    if (type->bits == 0) return InvalidArgument("strings cannot be external data");
    HYPER_ASSIGN_OR_RETURN(const FileBytes file, ExternalBytes(t, external));
    const int64_t have = static_cast<int64_t>(file.bytes.size());
    if (have != want) return wrong_bytes("external data", have);
    return Status::Ok();
  }
  if (t.has_raw_data()) {
    if (type->bits == 0) return InvalidArgument("strings cannot be raw data");
    const int64_t have = static_cast<int64_t>(t.raw_data().size());
    const TypedField field = FieldOf(t, type->bits, elements);
    // Some writers leave raw_data empty beside a typed field.
    if (have == 0 && want != 0 && field.held == field.expected) return Status::Ok();
    if (have != want) return wrong_bytes("raw_data", have);
    return Status::Ok();
  }
  const TypedField field = FieldOf(t, type->bits, elements);
  if (field.held != field.expected) {
    return InvalidArgument(fmt::format("{} has {} values, but {} of {} needs {}", field.name,
                                       field.held, FormatDims(dims), type->name, field.expected));
  }
  return Status::Ok();
}

Result<ir::HostTensor> ReadTensor(const TensorProto& t, ExternalData* external,
                                  const std::shared_ptr<const void>& owner) {
  HYPER_RETURN_IF_ERROR(CheckTensor(t, external));
  const std::optional<ir::DType> dtype = DTypeFromOnnx(t.data_type());
  if (!dtype.has_value()) {
    return RefusalStatus(RefusalOfElementType(t.data_type()),
                         fmt::format("element type {}", OnnxTypeName(t.data_type())));
  }
  const ir::TensorType type{*dtype, ir::Dims(t.dims().begin(), t.dims().end())};
  auto aligned = [&](const std::byte* data) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(ir::DTypeBytes(*dtype)) == 0;
  };
  if (IsExternal(t)) {
    HYPER_ASSIGN_OR_RETURN(const FileBytes file, ExternalBytes(t, external));
    if (aligned(file.bytes.data())) return ir::HostTensor(type, file.owner, file.bytes.data());
    return ir::HostTensor(type, file.bytes);
  }
  if (t.has_raw_data() && !t.raw_data().empty()) {
    const std::string& raw = t.raw_data();
    const std::byte* data = reinterpret_cast<const std::byte*>(raw.data());
    if (*dtype != ir::DType::kBool) {
      if (owner != nullptr && type.bytes() >= kShareBytes && aligned(data)) {
        return ir::HostTensor(type, owner, data);
      }
      return ir::HostTensor(type, std::span(data, raw.size()));
    }
    std::vector<std::byte> bools;
    for (char c : raw) bools.push_back(static_cast<std::byte>(c != 0));
    return ir::HostTensor(type, bools);
  }
  return ir::HostTensor(type, TypedBytes(t, *dtype));
}

ir::HostTensor ConvertTensor(const ir::HostTensor& value, ir::DType dtype) {
  if (value.type().dtype == dtype) return value;
  const ir::TensorType type{dtype, value.type().dims};
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes()));
  const int64_t elements = type.elements();
  auto fill = [&]<typename T>(T) {
    for (int64_t i = 0; i < elements; ++i) {
      const T element = ir::IsFloat(value.type().dtype) ? static_cast<T>(value.ElementAsDouble(i))
                                                        : static_cast<T>(value.ElementAsInt(i));
      std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &element, sizeof(T));
    }
  };
  auto fill_half = [&](auto encode) {
    for (int64_t i = 0; i < elements; ++i) {
      const uint16_t element = encode(value.ElementAsDouble(i));
      std::memcpy(bytes.data() + static_cast<size_t>(i) * 2, &element, 2);
    }
  };
  switch (dtype) {
    case ir::DType::kF32: fill(float{}); break;
    case ir::DType::kF64: fill(double{}); break;
    case ir::DType::kF16: fill_half([](double v) { return ir::HalfBits(v); }); break;
    case ir::DType::kBF16: fill_half([](double v) { return ir::BFloat16Bits(v); }); break;
    case ir::DType::kI8: fill(int8_t{}); break;
    case ir::DType::kI16: fill(int16_t{}); break;
    case ir::DType::kI32: fill(int32_t{}); break;
    case ir::DType::kI64: fill(int64_t{}); break;
    case ir::DType::kU8: fill(uint8_t{}); break;
    case ir::DType::kU16: fill(uint16_t{}); break;
    case ir::DType::kU32: fill(uint32_t{}); break;
    case ir::DType::kU64: fill(uint64_t{}); break;
    case ir::DType::kBool: fill(bool{}); break;
  }
  return ir::HostTensor(type, bytes);
}

}  // namespace hyper::onnx_frontend
