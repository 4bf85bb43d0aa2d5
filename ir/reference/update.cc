// Accumulators and optimizers. Every element is computed in double and rounded once; outputs may
// share memory with the inputs that they update.
#include <cmath>

#include "ir/reference/kernel.h"

namespace hyper::ir::reference {
namespace {

template <typename Body>
Status ForEachElement(const Call& call, Body&& body) {
  const int64_t elements = call.in(0).elements();
  return DispatchFloat(call.in(0).dtype, [&](auto zero) {
    for (int64_t i = 0; i < elements; ++i) body(zero, i);
    return Status::Ok();
  });
}

double ScalarInput(const Call& call, size_t input) {
  return LoadScalar(call.in(input).dtype, call.inputs[input].data, 0).f;
}

Status Accumulate(const Call& call) {
  return DispatchNumeric(call.in(0).dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < call.in(0).elements(); ++i) {
      call.Out<T>(0)[i] = static_cast<T>(call.In<T>(0)[i] + call.In<T>(1)[i]);
    }
    return Status::Ok();
  });
}

Status AccumulateStat(const Call& call) {
  const double momentum = call.attributes.Float("momentum");
  return ForEachElement(call, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    const double acc = call.In<T>(0)[i];
    const double value = call.In<T>(1)[i];
    call.Out<T>(0)[i] = static_cast<T>(acc * momentum + (1 - momentum) * value);
  });
}

Status RunningUpdate(const Call& call) {
  const double weight =
      std::pow(call.attributes.Float("momentum"), static_cast<double>(call.In<int64_t>(2)[0]));
  return ForEachElement(call, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    const double state = call.In<T>(0)[i];
    call.Out<T>(0)[i] = static_cast<T>(state * weight + call.In<T>(1)[i]);
  });
}

Status StatWeight(const Call& call) {
  const double weight =
      std::pow(call.attributes.Float("momentum"), static_cast<double>(call.In<int64_t>(1)[1]));
  return ForEachElement(call, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    call.Out<T>(0)[i] = static_cast<T>(call.In<T>(0)[i] * weight);
  });
}

Status Sgd(const Call& call) {
  const double lr = ScalarInput(call, 2);
  const double clip = ScalarInput(call, 3);
  const double decay = ScalarInput(call, 4);
  return ForEachElement(call, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    const double p = call.In<T>(0)[i];
    call.Out<T>(0)[i] = static_cast<T>(p - lr * (call.In<T>(1)[i] * clip + decay * p));
  });
}

Status Momentum(const Call& call) {
  const bool nesterov = call.attributes.Bool("nesterov");
  const double lr = ScalarInput(call, 3);
  const double clip = ScalarInput(call, 4);
  const double mu = ScalarInput(call, 5);
  const double decay = ScalarInput(call, 6);
  const bool first = call.In<int64_t>(7)[0] == 1;
  return ForEachElement(call, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    const double p = call.In<T>(0)[i];
    const double g = call.In<T>(1)[i] * clip + decay * p;
    const double buf = first ? g : mu * call.In<T>(2)[i] + g;
    call.Out<T>(0)[i] = static_cast<T>(p - lr * (nesterov ? g + mu * buf : buf));
    call.Out<T>(1)[i] = static_cast<T>(buf);
  });
}

Status Adam(const Call& call) {
  const bool decoupled = call.attributes.Bool("decoupled");
  const double lr = ScalarInput(call, 4);
  const double clip = ScalarInput(call, 5);
  const double beta1 = ScalarInput(call, 6);
  const double beta2 = ScalarInput(call, 7);
  const double epsilon = ScalarInput(call, 8);
  const double decay = ScalarInput(call, 9);
  const auto step = static_cast<double>(call.In<int64_t>(10)[0]);
  const double correction1 = 1 - std::pow(beta1, step);
  const double correction2 = 1 - std::pow(beta2, step);
  return ForEachElement(call, [&](auto zero, int64_t i) {
    using T = decltype(zero);
    double p = call.In<T>(0)[i];
    double g = call.In<T>(1)[i] * clip;
    if (decoupled) {
      p -= lr * decay * p;
    } else {
      g += decay * p;
    }
    const double m = beta1 * call.In<T>(2)[i] + (1 - beta1) * g;
    const double v = beta2 * call.In<T>(3)[i] + (1 - beta2) * g * g;
    const double denominator = std::sqrt(v) / std::sqrt(correction2) + epsilon;
    call.Out<T>(0)[i] = static_cast<T>(p - lr / correction1 * m / denominator);
    call.Out<T>(1)[i] = static_cast<T>(m);
    call.Out<T>(2)[i] = static_cast<T>(v);
  });
}

Status GradNormSq(const Call& call) {
  double sum = 0;
  HYPER_RETURN_IF_ERROR(ForEachElement(call, [&](auto zero, int64_t i) {
    const double g = call.In<decltype(zero)>(0)[i];
    sum += g * g;
  }));
  call.Out<double>(0)[0] = sum;
  return Status::Ok();
}

constexpr NamedKernel kKernels[] = {
    {"accumulate", Accumulate},
    {"accumulate_stat", AccumulateStat},
    {"running_update", RunningUpdate},
    {"stat_weight", StatWeight},
    {"sgd", Sgd},
    {"momentum", Momentum},
    {"adam", Adam},
    {"grad_norm_sq", GradNormSq},
};

}  // namespace

std::span<const NamedKernel> UpdateKernels() { return kKernels; }

}  // namespace hyper::ir::reference
