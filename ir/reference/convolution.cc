// Convolutions as sums over (tap, row): for one tap of the window a row of the output reads (or
// writes) the input with a constant step, so the innermost loops are plain vectors.
#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

struct Row {
  int64_t out = 0;    // offset of the row in the output plane
  int64_t in = 0;     // offset in the input plane that output position 0 of the row would read
  int64_t begin = 0;  // positions whose tap lies inside the input
  int64_t end = 0;
};

struct Geometry {
  int64_t batch, in_channels, out_channels, groups;
  int64_t in_plane, out_plane, taps, step;
  std::vector<std::vector<Row>> rows;  // by tap
};

Dims SpatialOf(const TensorType& t) {
  Dims dims(t.dims.begin() + 2, t.dims.end());
  if (dims.empty()) dims.push_back(1);
  return dims;
}

// `input` [N, C, ...], `weight` [O, C/groups, ...], `output` [N, O, ...] of the forward direction.
Geometry MakeGeometry(const Attributes& a, const TensorType& input, const TensorType& weight,
                      const TensorType& output) {
  const Dims in = SpatialOf(input);
  const Dims kernel = SpatialOf(weight);
  const Dims out = SpatialOf(output);
  auto entry = [&](std::string_view name, size_t d, int64_t missing) {
    const Dims& list = a.GetDims(name);
    return d < list.size() ? list[d] : missing;
  };
  const size_t rank = in.size();
  const size_t last = rank - 1;
  Geometry g;
  g.batch = input.dims[0];
  g.in_channels = input.dims[1];
  g.out_channels = output.dims[1];
  g.groups = a.Int("groups");
  g.in_plane = ElementCount(in);
  g.out_plane = ElementCount(out);
  g.taps = ElementCount(kernel);
  g.step = entry("strides", last, 1);
  const Dims in_strides = RowMajorStrides(in);
  const Dims out_strides = RowMajorStrides(out);
  const Dims outer(out.begin(), out.end() - 1);
  ForEachIndex(kernel, [&](const Dims& tap) {
    std::vector<Row>& rows = g.rows.emplace_back();
    auto position = [&](size_t d, int64_t o) {
      return o * entry("strides", d, 1) - entry("pads_low", d, 0) +
             tap[d] * entry("dilations", d, 1);
    };
    ForEachIndex(outer, [&](const Dims& index) {
      Row row;
      for (size_t d = 0; d < last; ++d) {
        const int64_t p = position(d, index[d]);
        if (p < 0 || p >= in[d]) return;
        row.out += index[d] * out_strides[d];
        row.in += p * in_strides[d];
      }
      row.in += position(last, 0);
      while (row.begin < out[last] && position(last, row.begin) < 0) ++row.begin;
      row.end = row.begin;
      while (row.end < out[last] && position(last, row.end) < in[last]) ++row.end;
      if (row.begin < row.end) rows.push_back(row);
    });
  });
  return g;
}

// Calls body(n, oc, ic, weight offset of the first tap) for every pair of connected channels.
template <typename Body>
void ForEachPair(const Geometry& g, Body&& body) {
  if (g.groups == 0) return;
  const int64_t in_per_group = g.in_channels / g.groups;
  const int64_t out_per_group = g.out_channels / g.groups;
  for (int64_t n = 0; n < g.batch; ++n) {
    for (int64_t oc = 0; oc < g.out_channels; ++oc) {
      for (int64_t k = 0; k < in_per_group; ++k) {
        body(n, oc, oc / out_per_group * in_per_group + k, (oc * in_per_group + k) * g.taps);
      }
    }
  }
}

template <typename T>
std::vector<double> ToDouble(const T* data, int64_t count) {
  return std::vector<double>(data, data + count);
}

template <typename T>
void Store(const std::vector<double>& from, T* to) {
  for (size_t i = 0; i < from.size(); ++i) to[i] = static_cast<T>(from[i]);
}

Status Conv(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const Geometry g = MakeGeometry(call.attributes, call.in(0), call.in(1), call.out(0));
    const std::vector<double> x = ToDouble(call.In<T>(0), call.in(0).elements());
    const T* w = call.In<T>(1);
    std::vector<double> y(static_cast<size_t>(call.out(0).elements()), 0.0);
    ForEachPair(g, [&](int64_t n, int64_t oc, int64_t ic, int64_t at) {
      const double* in = x.data() + (n * g.in_channels + ic) * g.in_plane;
      double* out = y.data() + (n * g.out_channels + oc) * g.out_plane;
      for (int64_t t = 0; t < g.taps; ++t) {
        const double f = w[at + t];
        for (const Row& r : g.rows[static_cast<size_t>(t)]) {
          for (int64_t o = r.begin; o < r.end; ++o) out[r.out + o] += f * in[r.in + o * g.step];
        }
      }
    });
    Store(y, call.Out<T>(0));
    return Status::Ok();
  });
}

Status ConvGradInput(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const Geometry g = MakeGeometry(call.attributes, call.out(0), call.in(1), call.in(0));
    const std::vector<double> grad = ToDouble(call.In<T>(0), call.in(0).elements());
    const T* w = call.In<T>(1);
    std::vector<double> dx(static_cast<size_t>(call.out(0).elements()), 0.0);
    ForEachPair(g, [&](int64_t n, int64_t oc, int64_t ic, int64_t at) {
      double* in = dx.data() + (n * g.in_channels + ic) * g.in_plane;
      const double* out = grad.data() + (n * g.out_channels + oc) * g.out_plane;
      for (int64_t t = 0; t < g.taps; ++t) {
        const double f = w[at + t];
        for (const Row& r : g.rows[static_cast<size_t>(t)]) {
          for (int64_t o = r.begin; o < r.end; ++o) in[r.in + o * g.step] += f * out[r.out + o];
        }
      }
    });
    Store(dx, call.Out<T>(0));
    return Status::Ok();
  });
}

Status ConvGradWeight(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const Geometry g = MakeGeometry(call.attributes, call.in(1), call.out(0), call.in(0));
    const std::vector<double> grad = ToDouble(call.In<T>(0), call.in(0).elements());
    const std::vector<double> x = ToDouble(call.In<T>(1), call.in(1).elements());
    std::vector<double> dw(static_cast<size_t>(call.out(0).elements()), 0.0);
    ForEachPair(g, [&](int64_t n, int64_t oc, int64_t ic, int64_t at) {
      const double* in = x.data() + (n * g.in_channels + ic) * g.in_plane;
      const double* out = grad.data() + (n * g.out_channels + oc) * g.out_plane;
      for (int64_t t = 0; t < g.taps; ++t) {
        double sum = 0;
        for (const Row& r : g.rows[static_cast<size_t>(t)]) {
          for (int64_t o = r.begin; o < r.end; ++o) sum += out[r.out + o] * in[r.in + o * g.step];
        }
        dw[static_cast<size_t>(at + t)] += sum;
      }
    });
    Store(dw, call.Out<T>(0));
    return Status::Ok();
  });
}

constexpr NamedKernel kKernels[] = {
    {"conv", Conv}, {"conv_grad_input", ConvGradInput}, {"conv_grad_weight", ConvGradWeight}};

}  // namespace

std::span<const NamedKernel> ConvolutionKernels() { return kKernels; }

}  // namespace hyper::ir::reference
