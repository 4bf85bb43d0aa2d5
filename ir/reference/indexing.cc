#include <algorithm>
#include <numeric>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

// Index `at` of an index tensor, counted from the end when negative.
Result<int64_t> Wrapped(const ConstTensorRef& indices, int64_t at, int64_t extent) {
  const int64_t index = IndexAt(indices, at);
  const int64_t wrapped = index < 0 ? index + extent : index;
  if (wrapped < 0 || wrapped >= extent) {
    return InvalidArgument("index " + std::to_string(index) + " is outside an axis of extent " +
                           std::to_string(extent));
  }
  return wrapped;
}

Status Gather(const Call& call) {
  const AxisView v = ViewAround(call.in(0).dims, call.attributes.Int("axis"));
  const int64_t count = call.in(1).elements();
  const int64_t row = v.inner * DTypeBytes(call.in(0).dtype);
  for (int64_t o = 0; o < v.outer; ++o) {
    for (int64_t k = 0; k < count; ++k) {
      HYPER_ASSIGN_OR_RETURN(const int64_t index, Wrapped(call.inputs[1], k, v.extent));
      if (row == 0) continue;
      std::memcpy(call.outputs[0].data + (o * count + k) * row,
                  call.inputs[0].data + (o * v.extent + index) * row, static_cast<size_t>(row));
    }
  }
  return Status::Ok();
}

Status ScatterAdd(const Call& call) {
  const AxisView v = ViewAround(call.out(0).dims, call.attributes.Int("axis"));
  const int64_t count = call.in(0).elements();
  return DispatchNumeric(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    std::vector<A> sum(static_cast<size_t>(call.out(0).elements()), A{0});
    const T* updates = call.In<T>(1);
    for (int64_t o = 0; o < v.outer; ++o) {
      for (int64_t k = 0; k < count; ++k) {
        HYPER_ASSIGN_OR_RETURN(const int64_t index, Wrapped(call.inputs[0], k, v.extent));
        A* row = sum.data() + (o * v.extent + index) * v.inner;
        for (int64_t i = 0; i < v.inner; ++i) {
          row[i] += static_cast<A>(updates[(o * count + k) * v.inner + i]);
        }
      }
    }
    for (size_t i = 0; i < sum.size(); ++i) call.Out<T>(0)[i] = static_cast<T>(sum[i]);
    return Status::Ok();
  });
}

// Calls body(position in the index tensor, position in the data) for every element of the index
// tensor: its own coordinates, with that of `axis` replaced by its value.
template <typename Body>
Status ForEachElementIndex(const ConstTensorRef& indices, const Dims& data_dims, int64_t axis,
                           Body&& body) {
  const Dims strides = RowMajorStrides(data_dims);
  const auto a = static_cast<size_t>(axis);
  Status status;
  int64_t n = 0;
  ForEachIndex(indices.type->dims, [&](const Dims& index) {
    const int64_t at = n++;
    const Result<int64_t> k = Wrapped(indices, at, data_dims[a]);
    if (!k.ok()) {
      status = k.status();
      return;
    }
    int64_t offset = *k * strides[a];
    for (size_t d = 0; d < index.size(); ++d) {
      if (d != a) offset += index[d] * strides[d];
    }
    body(at, offset);
  });
  return status;
}

Status GatherElements(const Call& call) {
  const auto size = static_cast<size_t>(DTypeBytes(call.in(0).dtype));
  return ForEachElementIndex(call.inputs[1], call.in(0).dims, call.attributes.Int("axis"),
                             [&](int64_t at, int64_t offset) {
                               std::memcpy(call.outputs[0].data + static_cast<size_t>(at) * size,
                                           call.inputs[0].data + static_cast<size_t>(offset) * size,
                                           size);
                             });
}

Status ScatterAddElements(const Call& call) {
  return DispatchNumeric(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    std::vector<A> sum(static_cast<size_t>(call.out(0).elements()), A{0});
    HYPER_RETURN_IF_ERROR(
        ForEachElementIndex(call.inputs[0], call.out(0).dims, call.attributes.Int("axis"),
                            [&](int64_t at, int64_t offset) {
                              sum[static_cast<size_t>(offset)] += static_cast<A>(call.In<T>(1)[at]);
                            }));
    for (size_t i = 0; i < sum.size(); ++i) call.Out<T>(0)[i] = static_cast<T>(sum[i]);
    return Status::Ok();
  });
}

// Updates one after another, rounded each time.
Status ScatterElements(const Call& call) {
  const std::string& reduction = call.attributes.String("reduction");
  return DispatchNumeric(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    T* y = call.Out<T>(0);
    std::copy_n(call.In<T>(0), call.in(0).elements(), y);
    return ForEachElementIndex(call.inputs[1], call.in(0).dims, call.attributes.Int("axis"),
                               [&](int64_t at, int64_t offset) {
                                 const T u = call.In<T>(2)[at];
                                 T& v = y[offset];
                                 const bool nan = u != u || v != v;
                                 if (reduction == "none") {
                                   v = u;
                                 } else if (reduction == "sum") {
                                   v = static_cast<T>(v + u);
                                 } else if (reduction == "prod") {
                                   v = static_cast<T>(v * u);
                                 } else if (nan) {
                                   v = static_cast<T>(v + u);
                                 } else {
                                   v = reduction == "max" ? std::max(v, u) : std::min(v, u);
                                 }
                               });
  });
}

// Best first; equal values in order of their index; a NaN counts as the largest value.
Status TopK(const Call& call) {
  const AxisView v = ViewAround(call.in(0).dims, call.attributes.Int("axis"));
  const int64_t k = call.attributes.Int("k");
  const bool largest = call.attributes.Bool("largest");
  return DispatchNumeric(call.in(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<int64_t> order(static_cast<size_t>(v.extent));
    for (int64_t o = 0; o < v.outer; ++o) {
      for (int64_t i = 0; i < v.inner; ++i) {
        const T* x = call.In<T>(0) + o * v.extent * v.inner + i;
        auto above = [&](T a, T b) { return a > b || (a != a && b == b); };
        std::iota(order.begin(), order.end(), int64_t{0});
        std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {
          const T a = x[p * v.inner];
          const T b = x[q * v.inner];
          return largest ? above(a, b) : above(b, a);
        });
        for (int64_t n = 0; n < k; ++n) {
          const int64_t at = (o * k + n) * v.inner + i;
          call.Out<T>(0)[at] = x[order[static_cast<size_t>(n)] * v.inner];
          call.Out<int64_t>(1)[at] = order[static_cast<size_t>(n)];
        }
      }
    }
    return Status::Ok();
  });
}

constexpr NamedKernel kKernels[] = {
    {"gather", Gather, true},
    {"scatter_add", ScatterAdd},
    {"gather_elements", GatherElements, true},
    {"scatter_add_elements", ScatterAddElements},
    {"scatter_elements", ScatterElements},
    {"top_k", TopK},
};

}  // namespace

std::span<const NamedKernel> IndexingKernels() { return kKernels; }

}  // namespace hyper::ir::reference
