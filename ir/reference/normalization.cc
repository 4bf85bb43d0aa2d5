// All moments and sums are formed in double, whatever the type of the tensors.
#include <cmath>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

// x seen as [batch, channels, inner].
struct ChannelView {
  AxisView v;
  explicit ChannelView(const TensorType& x) : v(ViewAround(x.dims, 1)) {}
  int64_t channels() const { return v.extent; }
  double count() const { return static_cast<double>(v.outer * v.inner); }
  // body(offset) for every element of channel c.
  template <typename Body>
  void ForEach(int64_t c, Body&& body) const {
    for (int64_t n = 0; n < v.outer; ++n) {
      for (int64_t i = 0; i < v.inner; ++i) body((n * v.extent + c) * v.inner + i);
    }
  }
};

Status BatchNorm(const Call& call) {
  const double epsilon = call.attributes.Float("epsilon");
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const ChannelView view(call.in(0));
    const T* x = call.In<T>(0);
    for (int64_t c = 0; c < view.channels(); ++c) {
      double sum = 0;
      view.ForEach(c, [&](int64_t i) { sum += x[i]; });
      const double mean = sum / view.count();
      double square = 0;
      view.ForEach(c, [&](int64_t i) { square += (x[i] - mean) * (x[i] - mean); });
      const double var = square / view.count();
      const double factor = call.In<T>(1)[c] / std::sqrt(var + epsilon);
      const double bias = call.In<T>(2)[c];
      view.ForEach(
          c, [&](int64_t i) { call.Out<T>(0)[i] = static_cast<T>((x[i] - mean) * factor + bias); });
      call.Out<T>(1)[c] = static_cast<T>(mean);
      call.Out<T>(2)[c] = static_cast<T>(var);
    }
    return Status::Ok();
  });
}

Status BatchNormGrad(const Call& call) {
  const double epsilon = call.attributes.Float("epsilon");
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const ChannelView view(call.in(0));
    const T* g = call.In<T>(0);
    const T* x = call.In<T>(1);
    for (int64_t c = 0; c < view.channels(); ++c) {
      const double scale = call.In<T>(2)[c];
      const double mean = call.In<T>(3)[c];
      const double rstd = 1 / std::sqrt(call.In<T>(4)[c] + epsilon);
      double sum_g = 0;
      double sum_gx = 0;
      view.ForEach(c, [&](int64_t i) {
        sum_g += g[i];
        sum_gx += g[i] * ((x[i] - mean) * rstd);
      });
      view.ForEach(c, [&](int64_t i) {
        const double hat = (x[i] - mean) * rstd;
        const double centred = g[i] - (sum_g + hat * sum_gx) / view.count();
        call.Out<T>(0)[i] = static_cast<T>(scale * rstd * centred);
      });
      call.Out<T>(1)[c] = static_cast<T>(sum_gx);
      call.Out<T>(2)[c] = static_cast<T>(sum_g);
    }
    return Status::Ok();
  });
}

// x seen as [rows, columns], normalized over the columns.
struct RowView {
  int64_t rows = 1;
  int64_t columns = 1;
  RowView(const TensorType& x, int64_t axis) {
    const std::span<const int64_t> dims(x.dims);
    rows = ElementCount(dims.subspan(0, static_cast<size_t>(axis)));
    columns = ElementCount(dims.subspan(static_cast<size_t>(axis)));
  }
  double count() const { return static_cast<double>(columns); }
};

// layer_norm(x, scale, bias) -> y, mean, rstd with `centre`; rms_norm(x, scale) -> y, rstd without.
Status RowNorm(const Call& call, bool centre) {
  const double epsilon = call.attributes.Float("epsilon");
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowView view(call.in(0), call.attributes.Int("axis"));
    const T* scale = call.In<T>(1);
    const T* bias = centre ? call.In<T>(2) : nullptr;
    for (int64_t r = 0; r < view.rows; ++r) {
      const T* x = call.In<T>(0) + r * view.columns;
      T* y = call.Out<T>(0) + r * view.columns;
      double mean = 0;
      if (centre) {
        for (int64_t i = 0; i < view.columns; ++i) mean += x[i];
        mean /= view.count();
        call.Out<T>(1)[r] = static_cast<T>(mean);
      }
      double square = 0;
      for (int64_t i = 0; i < view.columns; ++i) square += (x[i] - mean) * (x[i] - mean);
      const double rstd = 1 / std::sqrt(square / view.count() + epsilon);
      call.Out<T>(centre ? 2 : 1)[r] = static_cast<T>(rstd);
      for (int64_t i = 0; i < view.columns; ++i) {
        const double scaled = (x[i] - mean) * rstd * scale[i];
        y[i] = static_cast<T>(centre ? scaled + bias[i] : scaled);
      }
    }
    return Status::Ok();
  });
}

// (g, x, scale[, mean], rstd) -> dx, dscale[, dbias]; with `centre` the mean of the scaled gradient
// is taken off too.
Status RowNormGrad(const Call& call, bool centre) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowView view(call.in(0), call.attributes.Int("axis"));
    const T* scale = call.In<T>(2);
    std::vector<double> dscale(static_cast<size_t>(view.columns), 0.0);
    std::vector<double> dbias(static_cast<size_t>(view.columns), 0.0);
    for (int64_t r = 0; r < view.rows; ++r) {
      const T* g = call.In<T>(0) + r * view.columns;
      const T* x = call.In<T>(1) + r * view.columns;
      const double mean = centre ? static_cast<double>(call.In<T>(3)[r]) : 0.0;
      const double rstd = call.In<T>(centre ? 4 : 3)[r];
      const auto hat = [&](int64_t i) { return (x[i] - mean) * rstd; };
      double sum_g = 0;
      double sum_gx = 0;
      for (int64_t i = 0; i < view.columns; ++i) {
        const double gi = g[i];
        sum_g += gi * scale[i];
        sum_gx += gi * scale[i] * hat(i);
        dscale[static_cast<size_t>(i)] += gi * hat(i);
        dbias[static_cast<size_t>(i)] += gi;
      }
      if (!centre) sum_g = 0;
      for (int64_t i = 0; i < view.columns; ++i) {
        const double gs = static_cast<double>(g[i]) * scale[i];
        call.Out<T>(0)[r * view.columns + i] =
            static_cast<T>(rstd * (gs - (sum_g + hat(i) * sum_gx) / view.count()));
      }
    }
    for (size_t i = 0; i < dscale.size(); ++i) {
      call.Out<T>(1)[i] = static_cast<T>(dscale[i]);
      if (centre) call.Out<T>(2)[i] = static_cast<T>(dbias[i]);
    }
    return Status::Ok();
  });
}

Status LayerNorm(const Call& call) { return RowNorm(call, true); }
Status LayerNormGrad(const Call& call) { return RowNormGrad(call, true); }
Status RmsNorm(const Call& call) { return RowNorm(call, false); }
Status RmsNormGrad(const Call& call) { return RowNormGrad(call, false); }

constexpr NamedKernel kKernels[] = {
    {"batch_norm", BatchNorm}, {"batch_norm_grad", BatchNormGrad},
    {"layer_norm", LayerNorm}, {"layer_norm_grad", LayerNormGrad},
    {"rms_norm", RmsNorm},     {"rms_norm_grad", RmsNormGrad},
};

}  // namespace

std::span<const NamedKernel> NormalizationKernels() { return kKernels; }

}  // namespace hyper::ir::reference
