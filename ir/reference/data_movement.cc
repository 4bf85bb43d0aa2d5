// Data movement works on elements of 1, 2, 4 or 8 bytes, whatever they mean.
#include <algorithm>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

// Calls body(T{}) with an unsigned integer as wide as the dtype.
template <typename Body>
void DispatchWidth(DType dtype, Body&& body) {
  switch (DTypeBytes(dtype)) {
    case 1: body(uint8_t{}); break;
    case 2: body(uint16_t{}); break;
    case 4: body(uint32_t{}); break;
    default: body(uint64_t{});
  }
}

// y[index] = x[offset + sum(index[d] * step[d])] for every index of y.
void StridedCopy(const Call& call, int64_t offset, const Dims& step) {
  DispatchWidth(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = call.In<T>(0) + offset;
    T* y = call.Out<T>(0);
    int64_t n = 0;
    ForEachIndex(call.out(0).dims, [&](const Dims& index) {
      int64_t from = 0;
      for (size_t d = 0; d < index.size(); ++d) from += index[d] * step[d];
      y[n++] = x[from];
    });
  });
}

Status Broadcast(const Call& call) {
  const Dims strides = RowMajorStrides(call.in(0).dims);
  const Dims& dims = call.attributes.GetDims("dims");
  Dims step(call.out(0).dims.size(), 0);
  for (size_t d = 0; d < dims.size(); ++d) {
    if (call.in(0).dims[d] != 1) step[static_cast<size_t>(dims[d])] = strides[d];
  }
  StridedCopy(call, 0, step);
  return Status::Ok();
}

// reshape and copy: the same elements in the same order.
Status Copy(const Call& call) {
  if (call.out(0).elements() == 0) return Status::Ok();
  std::memmove(call.outputs[0].data, call.inputs[0].data, static_cast<size_t>(call.out(0).bytes()));
  return Status::Ok();
}

Status Transpose(const Call& call) {
  const Dims strides = RowMajorStrides(call.in(0).dims);
  const Dims& perm = call.attributes.GetDims("perm");
  Dims step(perm.size());
  for (size_t d = 0; d < perm.size(); ++d) step[d] = strides[static_cast<size_t>(perm[d])];
  StridedCopy(call, 0, step);
  return Status::Ok();
}

Status Slice(const Call& call) {
  const Dims strides = RowMajorStrides(call.in(0).dims);
  const Dims& starts = call.attributes.GetDims("starts");
  const Dims& by = call.attributes.GetDims("strides");
  int64_t offset = 0;
  Dims step(strides.size());
  for (size_t d = 0; d < step.size(); ++d) {
    offset += starts[d] * strides[d];
    step[d] = by[d] * strides[d];
  }
  if (call.out(0).elements() > 0) StridedCopy(call, offset, step);
  return Status::Ok();
}

Status Reverse(const Call& call) {
  Dims step = RowMajorStrides(call.in(0).dims);
  int64_t offset = 0;
  for (int64_t axis : call.attributes.GetDims("axes")) {
    const auto d = static_cast<size_t>(axis);
    offset += (call.in(0).dims[d] - 1) * step[d];
    step[d] = -step[d];
  }
  if (call.out(0).elements() > 0) StridedCopy(call, offset, step);
  return Status::Ok();
}

// Where output position `i` of one dim reads, or -1 for a padding element.
int64_t PadSource(const std::string& mode, int64_t i, int64_t extent, int64_t low,
                  int64_t interior) {
  int64_t p = i - low;
  if (mode == "edge") return std::clamp<int64_t>(p, 0, extent - 1);
  if (mode == "reflect") {
    if (extent == 1) return 0;
    const int64_t period = 2 * (extent - 1);
    p = ((p % period) + period) % period;
    return p < extent ? p : period - p;
  }
  if (p < 0 || p % (interior + 1) != 0) return -1;
  p /= interior + 1;
  return p < extent ? p : -1;
}

Status Pad(const Call& call) {
  const Dims& low = call.attributes.GetDims("low");
  const Dims& interior = call.attributes.GetDims("interior");
  const std::string& mode = call.attributes.String("mode");
  const Dims& in_dims = call.in(0).dims;
  const Dims strides = RowMajorStrides(in_dims);
  const double value = call.attributes.Float("value");
  // Element offsets per dim and output position, -1 for padding.
  std::vector<Dims> source(in_dims.size());
  for (size_t d = 0; d < in_dims.size(); ++d) {
    for (int64_t i = 0; i < call.out(0).dims[d]; ++i) {
      const int64_t p = PadSource(mode, i, in_dims[d], low[d], interior[d]);
      source[d].push_back(p < 0 ? -1 : p * strides[d]);
    }
  }
  alignas(8) std::byte fill[8] = {};
  StoreScalar(call.out(0).dtype, fill, 0, {value, static_cast<int64_t>(value)});
  DispatchWidth(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    T padding;
    std::memcpy(&padding, fill, sizeof(T));
    const T* x = call.In<T>(0);
    T* y = call.Out<T>(0);
    int64_t n = 0;
    ForEachIndex(call.out(0).dims, [&](const Dims& index) {
      int64_t from = 0;
      bool inside = true;
      for (size_t d = 0; d < index.size() && inside; ++d) {
        const int64_t offset = source[d][static_cast<size_t>(index[d])];
        inside = offset >= 0;
        from += offset;
      }
      y[n++] = inside ? x[from] : padding;
    });
  });
  return Status::Ok();
}

Status Concat(const Call& call) {
  const int64_t axis = call.attributes.Int("axis");
  const AxisView out = ViewAround(call.out(0).dims, axis);
  const auto element = static_cast<size_t>(DTypeBytes(call.out(0).dtype));
  const size_t out_row = static_cast<size_t>(out.extent * out.inner) * element;
  size_t offset = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const AxisView in = ViewAround(call.in(i).dims, axis);
    const size_t row = static_cast<size_t>(in.extent * in.inner) * element;
    for (int64_t o = 0; o < out.outer && row > 0; ++o) {
      std::memcpy(call.outputs[0].data + static_cast<size_t>(o) * out_row + offset,
                  call.inputs[i].data + static_cast<size_t>(o) * row, row);
    }
    offset += row;
  }
  return Status::Ok();
}

Status Constant(const Call& call) {
  const HostTensor& value = call.attributes.Tensor("value");
  if (!value.bytes().empty()) {
    std::memcpy(call.outputs[0].data, value.bytes().data(), value.bytes().size());
  }
  return Status::Ok();
}

Status Iota(const Call& call) {
  const AxisView view = ViewAround(call.out(0).dims, call.attributes.Int("axis"));
  const int64_t elements = call.out(0).elements();
  for (int64_t n = 0; n < elements; ++n) {
    const int64_t i = n / view.inner % view.extent;
    StoreScalar(call.out(0).dtype, call.outputs[0].data, n, {static_cast<double>(i), i});
  }
  return Status::Ok();
}

constexpr NamedKernel kKernels[] = {
    {"broadcast", Broadcast, true},
    {"reshape", Copy, true},
    {"copy", Copy, true},
    {"transpose", Transpose, true},
    {"slice", Slice, true},
    {"reverse", Reverse, true},
    {"pad", Pad, true},
    {"concat", Concat, true},
    {"constant", Constant, true},
    {"iota", Iota, true},
};

}  // namespace

std::span<const NamedKernel> DataMovementKernels() { return kKernels; }

}  // namespace hyper::ir::reference
