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

Status LayerNorm(const Call& call) {
  const double epsilon = call.attributes.Float("epsilon");
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowView view(call.in(0), call.attributes.Int("axis"));
    for (int64_t r = 0; r < view.rows; ++r) {
      const T* x = call.In<T>(0) + r * view.columns;
      double sum = 0;
      for (int64_t i = 0; i < view.columns; ++i) sum += x[i];
      const double mean = sum / view.count();
      double square = 0;
      for (int64_t i = 0; i < view.columns; ++i) square += (x[i] - mean) * (x[i] - mean);
      const double rstd = 1 / std::sqrt(square / view.count() + epsilon);
      for (int64_t i = 0; i < view.columns; ++i) {
        const double hat = (x[i] - mean) * rstd;
        call.Out<T>(0)[r * view.columns + i] =
            static_cast<T>(hat * call.In<T>(1)[i] + call.In<T>(2)[i]);
      }
      call.Out<T>(1)[r] = static_cast<T>(mean);
      call.Out<T>(2)[r] = static_cast<T>(rstd);
    }
    return Status::Ok();
  });
}

// Shared by layer_norm_grad and rms_norm_grad: hat(r, i) is the normalized input; with `centre`
// the mean of the scaled gradient is taken off too.
template <typename T, typename Hat>
void NormGrad(const Call& call, const RowView& view, const T* scale, const T* rstd, bool centre,
              Hat hat) {
  const T* g = call.In<T>(0);
  std::vector<double> dscale(static_cast<size_t>(view.columns), 0.0);
  std::vector<double> dbias(static_cast<size_t>(view.columns), 0.0);
  for (int64_t r = 0; r < view.rows; ++r) {
    double sum_g = 0;
    double sum_gx = 0;
    for (int64_t i = 0; i < view.columns; ++i) {
      const double gi = g[r * view.columns + i];
      sum_g += gi * scale[i];
      sum_gx += gi * scale[i] * hat(r, i);
      dscale[static_cast<size_t>(i)] += gi * hat(r, i);
      dbias[static_cast<size_t>(i)] += gi;
    }
    if (!centre) sum_g = 0;
    for (int64_t i = 0; i < view.columns; ++i) {
      const double gs = static_cast<double>(g[r * view.columns + i]) * scale[i];
      call.Out<T>(0)[r * view.columns + i] =
          static_cast<T>(rstd[r] * (gs - (sum_g + hat(r, i) * sum_gx) / view.count()));
    }
  }
  for (size_t i = 0; i < dscale.size(); ++i) {
    call.Out<T>(1)[i] = static_cast<T>(dscale[i]);
    if (call.outputs.size() > 2) call.Out<T>(2)[i] = static_cast<T>(dbias[i]);
  }
}

Status LayerNormGrad(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowView view(call.in(0), call.attributes.Int("axis"));
    const T* x = call.In<T>(1);
    const T* mean = call.In<T>(3);
    const T* rstd = call.In<T>(4);
    NormGrad<T>(call, view, call.In<T>(2), rstd, true, [&](int64_t r, int64_t i) {
      return (static_cast<double>(x[r * view.columns + i]) - mean[r]) * rstd[r];
    });
    return Status::Ok();
  });
}

Status RmsNorm(const Call& call) {
  const double epsilon = call.attributes.Float("epsilon");
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowView view(call.in(0), call.attributes.Int("axis"));
    for (int64_t r = 0; r < view.rows; ++r) {
      const T* x = call.In<T>(0) + r * view.columns;
      double square = 0;
      for (int64_t i = 0; i < view.columns; ++i) square += static_cast<double>(x[i]) * x[i];
      const double rstd = 1 / std::sqrt(square / view.count() + epsilon);
      for (int64_t i = 0; i < view.columns; ++i) {
        call.Out<T>(0)[r * view.columns + i] = static_cast<T>(x[i] * rstd * call.In<T>(1)[i]);
      }
      call.Out<T>(1)[r] = static_cast<T>(rstd);
    }
    return Status::Ok();
  });
}

Status RmsNormGrad(const Call& call) {
  return DispatchFloat(call.out(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    const RowView view(call.in(0), call.attributes.Int("axis"));
    const T* x = call.In<T>(1);
    const T* rstd = call.In<T>(3);
    NormGrad<T>(call, view, call.In<T>(2), rstd, false, [&](int64_t r, int64_t i) {
      return static_cast<double>(x[r * view.columns + i]) * rstd[r];
    });
    return Status::Ok();
  });
}

constexpr NamedKernel kKernels[] = {
    {"batch_norm", BatchNorm}, {"batch_norm_grad", BatchNormGrad},
    {"layer_norm", LayerNorm}, {"layer_norm_grad", LayerNormGrad},
    {"rms_norm", RmsNorm},     {"rms_norm_grad", RmsNormGrad},
};

}  // namespace

std::span<const NamedKernel> NormalizationKernels() { return kKernels; }

}  // namespace hyper::ir::reference
