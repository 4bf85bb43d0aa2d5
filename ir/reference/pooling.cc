#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

struct Tap {
  int64_t number = 0;  // row-major in the window
  int64_t offset = 0;  // in the input plane
};

struct Windows {
  int64_t planes = 0;  // N * C
  int64_t in_plane = 0;
  int64_t taps = 0;
  std::vector<std::vector<Tap>> at;  // by output position: the taps inside the input
};

// `input` and `output` of the forward direction.
Windows MakeWindows(const Attributes& a, const TensorType& input, const TensorType& output) {
  const Dims in(input.dims.begin() + 2, input.dims.end());
  const Dims out(output.dims.begin() + 2, output.dims.end());
  const Dims& kernel = a.GetDims("kernel");
  const Dims& strides = a.GetDims("strides");
  const Dims& pads = a.GetDims("pads_low");
  const Dims& dilations = a.GetDims("dilations");
  const Dims in_strides = RowMajorStrides(in);
  Windows w;
  w.planes = input.dims[0] * input.dims[1];
  w.in_plane = ElementCount(in);
  w.taps = ElementCount(kernel);
  ForEachIndex(out, [&](const Dims& index) {
    std::vector<Tap>& list = w.at.emplace_back();
    int64_t number = 0;
    ForEachIndex(kernel, [&](const Dims& tap) {
      Tap t{number++, 0};
      for (size_t d = 0; d < in.size(); ++d) {
        const int64_t p = index[d] * strides[d] - pads[d] + tap[d] * dilations[d];
        if (p < 0 || p >= in[d]) return;
        t.offset += p * in_strides[d];
      }
      list.push_back(t);
    });
  });
  return w;
}

void StoreIndex(const TensorRef& t, int64_t at, int64_t value) {
  StoreScalar(t.type->dtype, t.data, at, {0, value});
}

Status MaxPool(const Call& call) {
  return DispatchNumeric(call.in(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const Windows w = MakeWindows(call.attributes, call.in(0), call.out(0));
    const auto outputs = static_cast<int64_t>(w.at.size());
    for (int64_t p = 0; p < w.planes; ++p) {
      const T* x = call.In<T>(0) + p * w.in_plane;
      for (int64_t o = 0; o < outputs; ++o) {
        using Limits = std::numeric_limits<T>;
        T best = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
        int64_t number = 0;
        bool first = true;
        for (const Tap& t : w.at[static_cast<size_t>(o)]) {
          const T v = x[t.offset];
          // The first maximum; a NaN is above everything.
          if (first || v > best || (v != v && best == best)) {
            best = v;
            number = t.number;
          }
          first = false;
        }
        call.Out<T>(0)[p * outputs + o] = best;
        StoreIndex(call.outputs[1], p * outputs + o, number);
      }
    }
    return Status::Ok();
  });
}

Status MaxPoolGrad(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const Windows w = MakeWindows(call.attributes, call.out(0), call.in(0));
    const auto outputs = static_cast<int64_t>(w.at.size());
    std::vector<double> dx(static_cast<size_t>(w.in_plane));
    for (int64_t p = 0; p < w.planes; ++p) {
      std::fill(dx.begin(), dx.end(), 0.0);
      for (int64_t o = 0; o < outputs; ++o) {
        const int64_t at = p * outputs + o;
        const int64_t number = LoadScalar(call.in(1).dtype, call.inputs[1].data, at).i;
        for (const Tap& t : w.at[static_cast<size_t>(o)]) {
          if (t.number == number) dx[static_cast<size_t>(t.offset)] += call.In<T>(0)[at];
        }
      }
      for (size_t i = 0; i < dx.size(); ++i) {
        call.Out<T>(0)[p * w.in_plane + static_cast<int64_t>(i)] = static_cast<T>(dx[i]);
      }
    }
    return Status::Ok();
  });
}

// Divisor of a window's sum; a window of padding alone has the sum 0 and any divisor will do.
double Divisor(const Windows& w, size_t output, bool count_include_pad) {
  if (count_include_pad) return static_cast<double>(w.taps);
  return std::max<double>(1, static_cast<double>(w.at[output].size()));
}

Status AvgPool(const Call& call) {
  const bool include = call.attributes.Bool("count_include_pad");
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const Windows w = MakeWindows(call.attributes, call.in(0), call.out(0));
    int64_t n = 0;
    for (int64_t p = 0; p < w.planes; ++p) {
      for (size_t o = 0; o < w.at.size(); ++o) {
        double sum = 0;
        for (const Tap& t : w.at[o]) sum += call.In<T>(0)[p * w.in_plane + t.offset];
        call.Out<T>(0)[n++] = static_cast<T>(sum / Divisor(w, o, include));
      }
    }
    return Status::Ok();
  });
}

Status AvgPoolGrad(const Call& call) {
  const bool include = call.attributes.Bool("count_include_pad");
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const Windows w = MakeWindows(call.attributes, call.out(0), call.in(0));
    std::vector<double> dx(static_cast<size_t>(call.out(0).elements()), 0.0);
    int64_t n = 0;
    for (int64_t p = 0; p < w.planes; ++p) {
      for (size_t o = 0; o < w.at.size(); ++o) {
        const double g = call.In<T>(0)[n++] / Divisor(w, o, include);
        for (const Tap& t : w.at[o]) dx[static_cast<size_t>(p * w.in_plane + t.offset)] += g;
      }
    }
    for (size_t i = 0; i < dx.size(); ++i) call.Out<T>(0)[i] = static_cast<T>(dx[i]);
    return Status::Ok();
  });
}

constexpr NamedKernel kKernels[] = {{"max_pool", MaxPool},
                                    {"max_pool_grad", MaxPoolGrad},
                                    {"avg_pool", AvgPool},
                                    {"avg_pool_grad", AvgPoolGrad}};

}  // namespace

std::span<const NamedKernel> PoolingKernels() { return kKernels; }

}  // namespace hyper::ir::reference
