#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

template <typename T>
bool IsNan(T x) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(x);
  return false;
}

// NaN wins, as in the scalar operators max and min.
template <typename T>
T Larger(T a, T b) {
  return a > b || IsNan(a) ? a : b;
}
template <typename T>
T Smaller(T a, T b) {
  return a < b || IsNan(a) ? a : b;
}

template <typename T, typename A, typename Combine>
void ReduceLoop(const Call& call, A start, Combine combine) {
  const Dims& dims = call.in(0).dims;
  const Dims& axes = call.attributes.GetDims("axes");
  // Step in the output per step in the input, 0 along reduced axes.
  const Dims out_strides = RowMajorStrides(call.out(0).dims);
  Dims step(dims.size(), 0);
  size_t kept = 0;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) == axes.end()) {
      step[d] = out_strides[kept++];
    }
  }
  std::vector<A> total(static_cast<size_t>(call.out(0).elements()), start);
  const T* x = call.In<T>(0);
  int64_t n = 0;
  ForEachIndex(dims, [&](const Dims& index) {
    int64_t to = 0;
    for (size_t d = 0; d < index.size(); ++d) to += index[d] * step[d];
    A& t = total[static_cast<size_t>(to)];
    t = combine(t, static_cast<A>(x[n++]));
  });
  T* y = call.Out<T>(0);
  for (size_t i = 0; i < total.size(); ++i) y[i] = static_cast<T>(total[i]);
}

Status Reduce(const Call& call) {
  const std::string& kind = call.attributes.String("kind");
  return DispatchNumeric(call.in(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    using Limits = std::numeric_limits<T>;
    const T lowest = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
    const T highest = Limits::has_infinity ? Limits::infinity() : Limits::max();
    if (kind == "sum") {
      ReduceLoop<T, A>(call, A{0}, [](A a, A b) { return a + b; });
    } else if (kind == "prod") {
      ReduceLoop<T, A>(call, A{1}, [](A a, A b) { return a * b; });
    } else if (kind == "max") {
      ReduceLoop<T, T>(call, lowest, [](T a, T b) { return Larger(a, b); });
    } else if (kind == "min") {
      ReduceLoop<T, T>(call, highest, [](T a, T b) { return Smaller(a, b); });
    } else if (kind == "and") {
      ReduceLoop<T, T>(call, T{1}, [](T a, T b) { return static_cast<T>(a != 0 && b != 0); });
    } else if (kind == "or") {
      ReduceLoop<T, T>(call, T{0}, [](T a, T b) { return static_cast<T>(a != 0 || b != 0); });
    } else {
      return Unimplemented("reduce of kind '" + kind + "'");
    }
    return Status::Ok();
  });
}

Status ArgReduce(const Call& call) {
  const AxisView view = ViewAround(call.in(0).dims, call.attributes.Int("axis"));
  const bool is_max = call.attributes.String("kind") == "max";
  const bool last = call.attributes.Bool("last");
  return DispatchNumeric(call.in(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* x = call.In<T>(0);
    auto* y = call.Out<int64_t>(0);
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t i = 0; i < view.inner; ++i) {
        const T* row = x + o * view.extent * view.inner + i;
        int64_t best = 0;
        for (int64_t k = 1; k < view.extent; ++k) {
          const T a = row[k * view.inner];
          const T b = row[best * view.inner];
          if (IsNan(b) && !(last && IsNan(a))) continue;
          const bool better = IsNan(a) || (is_max ? a > b : a < b);
          if (better || (last && a == b)) best = k;
        }
        y[o * view.inner + i] = best;
      }
    }
    return Status::Ok();
  });
}

Status Cumulative(const Call& call, bool product) {
  const AxisView view = ViewAround(call.in(0).dims, call.attributes.Int("axis"));
  const bool exclusive = call.attributes.Bool("exclusive");
  const bool reverse = call.attributes.Bool("reverse");
  return DispatchNumeric(call.in(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t o = 0; o < view.outer; ++o) {
      for (int64_t i = 0; i < view.inner; ++i) {
        const int64_t base = o * view.extent * view.inner + i;
        Accumulator<T> total = product ? 1 : 0;
        for (int64_t k = 0; k < view.extent; ++k) {
          const int64_t at = base + (reverse ? view.extent - 1 - k : k) * view.inner;
          const Accumulator<T> before = total;
          const auto v = static_cast<Accumulator<T>>(call.In<T>(0)[at]);
          total = product ? total * v : total + v;
          call.Out<T>(0)[at] = static_cast<T>(exclusive ? before : total);
        }
      }
    }
    return Status::Ok();
  });
}

Status Cumsum(const Call& call) { return Cumulative(call, false); }
Status Cumprod(const Call& call) { return Cumulative(call, true); }

constexpr NamedKernel kKernels[] = {
    {"reduce", Reduce}, {"arg_reduce", ArgReduce}, {"cumsum", Cumsum}, {"cumprod", Cumprod}};

}  // namespace

std::span<const NamedKernel> ReductionKernels() { return kKernels; }

}  // namespace hyper::ir::reference
