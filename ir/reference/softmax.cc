// softmax, log_softmax and cross_entropy with their gradients; sums in double.
#include <cmath>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

// Calls row(offset of element 0, stride, extent) for every line along the axis.
template <typename Body>
void ForEachLine(const TensorType& type, int64_t axis, Body&& body) {
  const AxisView v = ViewAround(type.dims, axis);
  for (int64_t o = 0; o < v.outer; ++o) {
    for (int64_t i = 0; i < v.inner; ++i) body(o * v.extent * v.inner + i, v.inner, v.extent);
  }
}

struct LogSum {
  double max;
  double log_sum;  // log(sum(exp(x - max)))
};

template <typename T>
LogSum LogSumExp(const T* x, int64_t stride, int64_t extent) {
  double max = -INFINITY;
  for (int64_t k = 0; k < extent; ++k) max = std::fmax(max, x[k * stride]);
  if (std::isinf(max)) max = 0;  // all -inf (or some +inf): the plain formula says what it says
  double sum = 0;
  for (int64_t k = 0; k < extent; ++k) sum += std::exp(x[k * stride] - max);
  return {max, std::log(sum)};
}

template <bool kLog>
Status Softmax(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    ForEachLine(call.in(0), call.attributes.Int("axis"),
                [&](int64_t at, int64_t stride, int64_t extent) {
                  const T* x = call.In<T>(0) + at;
                  T* y = call.Out<T>(0) + at;
                  const LogSum l = LogSumExp(x, stride, extent);
                  const double sum = std::exp(l.log_sum);
                  for (int64_t k = 0; k < extent; ++k) {
                    const double v = x[k * stride] - l.max;
                    y[k * stride] = static_cast<T>(kLog ? v - l.log_sum : std::exp(v) / sum);
                  }
                });
    return Status::Ok();
  });
}

template <bool kLog>
Status SoftmaxGrad(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    ForEachLine(
        call.out(0), call.attributes.Int("axis"), [&](int64_t at, int64_t stride, int64_t extent) {
          const T* g = call.In<T>(0) + at;
          const T* y = call.In<T>(1) + at;
          T* dx = call.Out<T>(0) + at;
          double sum = 0;
          for (int64_t k = 0; k < extent; ++k) {
            const double gk = g[k * stride];
            sum += kLog ? gk : gk * y[k * stride];
          }
          for (int64_t k = 0; k < extent; ++k) {
            const double gk = g[k * stride];
            const double yk = y[k * stride];
            dx[k * stride] = static_cast<T>(kLog ? gk - std::exp(yk) * sum : yk * (gk - sum));
          }
        });
    return Status::Ok();
  });
}

bool Ignored(const Attributes& a, int64_t label) {
  return a.Bool("has_ignore") && label == a.Int("ignore_index");
}

Status CrossEntropy(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = call.in(0).dims[0];
    const int64_t classes = call.in(0).dims[1];
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = call.In<T>(0) + r * classes;
      const int64_t label = IndexAt(call.inputs[1], r);
      const LogSum l = LogSumExp(x, 1, classes);
      const double lse = l.max + l.log_sum;
      double loss = 0;
      if (!Ignored(call.attributes, label)) {
        loss = label < 0 || label >= classes ? NAN : lse - x[label];
      }
      call.Out<T>(0)[r] = static_cast<T>(loss);
      call.Out<T>(1)[r] = static_cast<T>(lse);
    }
    return Status::Ok();
  });
}

Status CrossEntropyGrad(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const int64_t rows = call.in(1).dims[0];
    const int64_t classes = call.in(1).dims[1];
    for (int64_t r = 0; r < rows; ++r) {
      const double g = call.In<T>(0)[r];
      const T* x = call.In<T>(1) + r * classes;
      const int64_t label = IndexAt(call.inputs[2], r);
      const double lse = call.In<T>(3)[r];
      const bool ignored = Ignored(call.attributes, label);
      const bool outside = label < 0 || label >= classes;
      for (int64_t c = 0; c < classes; ++c) {
        const double p = std::exp(x[c] - lse) - (c == label ? 1 : 0);
        const double d = ignored ? 0 : outside ? NAN : g * p;
        call.Out<T>(0)[r * classes + c] = static_cast<T>(d);
      }
    }
    return Status::Ok();
  });
}

constexpr NamedKernel kKernels[] = {
    {"softmax", Softmax<false>},     {"softmax_grad", SoftmaxGrad<false>},
    {"log_softmax", Softmax<true>},  {"log_softmax_grad", SoftmaxGrad<true>},
    {"cross_entropy", CrossEntropy}, {"cross_entropy_grad", CrossEntropyGrad},
};

}  // namespace

std::span<const NamedKernel> SoftmaxKernels() { return kKernels; }

}  // namespace hyper::ir::reference
