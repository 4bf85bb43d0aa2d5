// What the family files of the reference kernels share: the call, typed access, index loops.
// Thread safety: pure functions.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "ir/op_def.h"
#include "ir/reference/reference.h"

namespace hyper::ir::reference {

struct Call {
  const Attributes& attributes;
  int64_t op_id;
  std::span<const ConstTensorRef> inputs;
  std::span<const TensorRef> outputs;

  const TensorType& in(size_t i) const { return *inputs[i].type; }
  const TensorType& out(size_t i) const { return *outputs[i].type; }
  template <typename T>
  const T* In(size_t i) const {
    return reinterpret_cast<const T*>(inputs[i].data);
  }
  template <typename T>
  T* Out(size_t i) const {
    return reinterpret_cast<T*>(outputs[i].data);
  }
};

using Kernel = Status (*)(const Call& call);
struct NamedKernel {
  std::string_view op;
  Kernel kernel;
  // Takes f16 and bf16 itself; others are run on f32 copies and rounded at the end.
  bool takes_half = false;
};

// One table per family file.
std::span<const NamedKernel> MapKernels();
std::span<const NamedKernel> DataMovementKernels();
std::span<const NamedKernel> ReductionKernels();
std::span<const NamedKernel> ContractionKernels();
std::span<const NamedKernel> LinearAlgebraKernels();
std::span<const NamedKernel> ConvolutionKernels();
std::span<const NamedKernel> PoolingKernels();
std::span<const NamedKernel> NormalizationKernels();
std::span<const NamedKernel> SoftmaxKernels();
std::span<const NamedKernel> IndexingKernels();
std::span<const NamedKernel> RandomKernels();
std::span<const NamedKernel> UpdateKernels();

// Calls body(T{}) with the C++ type of a float dtype (f32 or f64).
template <typename Body>
Status DispatchFloat(DType dtype, Body&& body) {
  if (dtype == DType::kF32) return body(float{});
  if (dtype == DType::kF64) return body(double{});
  return Unimplemented("no reference kernel for " + std::string(DTypeName(dtype)));
}

// The same over all dtypes but f16 and bf16; bool is uint8_t.
template <typename Body>
Status DispatchNumeric(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kF32: return body(float{});
    case DType::kF64: return body(double{});
    case DType::kI8: return body(int8_t{});
    case DType::kI16: return body(int16_t{});
    case DType::kI32: return body(int32_t{});
    case DType::kI64: return body(int64_t{});
    case DType::kU8:
    case DType::kBool: return body(uint8_t{});
    case DType::kU16: return body(uint16_t{});
    case DType::kU32: return body(uint32_t{});
    case DType::kU64: return body(uint64_t{});
    default: return Unimplemented("no reference kernel for " + std::string(DTypeName(dtype)));
  }
}

// The type in which sums of T are formed: double for floats, so that the oracle is more precise
// than what it judges; wrapping 64-bit arithmetic for integers.
template <typename T>
using Accumulator = std::conditional_t<std::is_floating_point_v<T>, double, uint64_t>;

// Visits a box in row-major order: body(index). Nothing happens when an extent is 0.
template <typename Body>
void ForEachIndex(std::span<const int64_t> dims, Body&& body) {
  if (ElementCount(dims) == 0) return;
  Dims index(dims.size(), 0);
  while (true) {
    body(static_cast<const Dims&>(index));
    size_t d = dims.size();
    while (d > 0 && ++index[d - 1] == dims[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

// dims seen as outer x extent x inner around `axis`.
struct AxisView {
  int64_t outer = 1;
  int64_t extent = 1;
  int64_t inner = 1;
};
inline AxisView ViewAround(std::span<const int64_t> dims, int64_t axis) {
  AxisView view;
  const auto a = static_cast<size_t>(axis);
  view.outer = ElementCount(dims.subspan(0, a));
  view.extent = dims[a];
  view.inner = ElementCount(dims.subspan(a + 1));
  return view;
}

// Element `index` of an i32 or i64 tensor.
inline int64_t IndexAt(const ConstTensorRef& t, int64_t index) {
  if (t.type->dtype == DType::kI32) return reinterpret_cast<const int32_t*>(t.data)[index];
  return reinterpret_cast<const int64_t*>(t.data)[index];
}

// Reads or writes one element of any dtype; integers (and bool) through int64.
ScalarValue LoadScalar(DType dtype, const std::byte* data, int64_t index);
void StoreScalar(DType dtype, std::byte* data, int64_t index, ScalarValue value);

}  // namespace hyper::ir::reference
