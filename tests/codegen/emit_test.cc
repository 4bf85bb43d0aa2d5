// Every case is lowered, emitted, compiled and run with 1, 2 and 3 tasks (equal bits) and compared
// with the reference interpreter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ir/reference/reference.h"
#include "lower/print.h"
#include "tests/codegen/emit_cases.h"
#include "tests/support/lowered_runner.h"

namespace hyper::testing {
namespace {

using ir::DType;

struct Random {
  uint64_t state = 0x9E3779B97F4A7C15ull;
  uint64_t Next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
};

template <typename T, typename F>
ir::HostTensor Fill(const ir::TensorType& type, F&& value) {
  std::vector<T> v(static_cast<size_t>(type.elements()));
  for (T& x : v) x = static_cast<T>(value());
  return ir::HostTensor(type, std::as_bytes(std::span(v)));
}

// Floats in [-3, 3]; "i<n>_" arguments are valid indices, some counted from the end.
ir::HostTensor Content(const ir::Function& f, const ir::Argument& a, Random& random) {
  const ir::TensorType& type = f.type(a.value);
  if (a.kind == ir::ArgumentKind::kRng) {
    const int64_t key[3] = {42, 5, 3};
    return ir::HostTensor(type, std::as_bytes(std::span(key)));
  }
  int64_t limit = 0;
  if (a.name[0] == 'i') limit = std::stoll(a.name.substr(1));
  const auto integer = [&]() -> int64_t {
    if (limit > 0) return static_cast<int64_t>(random.Next() % static_cast<uint64_t>(limit));
    return static_cast<int64_t>(random.Next() % 13) - 6;
  };
  const auto real = [&] { return 6 * random.Uniform() - 3; };
  switch (type.dtype) {
    case DType::kF32: return Fill<float>(type, real);
    case DType::kF64: return Fill<double>(type, real);
    case DType::kI64: return Fill<int64_t>(type, integer);
    case DType::kI32: return Fill<int32_t>(type, integer);
    case DType::kI8: return Fill<int8_t>(type, integer);
    default: return Fill<uint8_t>(type, integer);
  }
}

void ExpectClose(const ir::HostTensor& got, const ir::HostTensor& want, double tolerance) {
  ASSERT_EQ(got.type(), want.type());
  double scale = 1;
  for (int64_t i = 0; i < want.type().elements(); ++i) {
    if (std::isfinite(want.ElementAsDouble(i))) {
      scale = std::max(scale, std::min(std::fabs(want.ElementAsDouble(i)), 1e3));
    }
  }
  for (int64_t i = 0; i < want.type().elements(); ++i) {
    if (!ir::IsFloat(want.type().dtype)) {
      ASSERT_EQ(got.ElementAsInt(i), want.ElementAsInt(i)) << "element " << i;
      continue;
    }
    const double x = got.ElementAsDouble(i), y = want.ElementAsDouble(i);
    if (std::isnan(y) || std::isinf(y)) {
      ASSERT_TRUE(std::isnan(y) ? std::isnan(x) : x == y)
          << "element " << i << ": " << x << " for " << y;
    } else {
      ASSERT_LE(std::fabs(x - y), tolerance * (scale + std::fabs(y)))
          << "element " << i << ": " << x << " for " << y;
    }
  }
}

class EmitTest : public ::testing::TestWithParam<DType> {};

TEST_P(EmitTest, MatchesReferenceForAnyNumberOfTasks) {
  const DType dtype = GetParam();
  const double unit = dtype == DType::kF32 ? 2e-7 : 2e-15;
  std::vector<EmitCase> cases = EmitCases(dtype);
  std::vector<lower::LoweredModule> modules;
  KernelSet kernels;
  for (const EmitCase& c : cases) {
    SCOPED_TRACE(c.name);
    ir::Module module;
    module.functions.push_back(c.function);
    Result<lower::LoweredModule> lowered = lower::Lower(module, {});
    ASSERT_TRUE(lowered.ok()) << lowered.status().ToString();
    const Status added = kernels.Add(*lowered);
    ASSERT_TRUE(added.ok()) << added.ToString() << lower::Print(*lowered);
    modules.push_back(std::move(lowered).value());
  }
  const Status compiled = kernels.Compile();
  ASSERT_TRUE(compiled.ok()) << compiled.ToString();
  Random random;
  for (size_t k = 0; k < cases.size(); ++k) {
    const ir::Function& f = cases[k].function;
    SCOPED_TRACE(cases[k].name + "\n" + lower::Print(modules[k]));
    std::vector<ir::HostTensor> arguments;
    for (const ir::Argument& a : f.arguments()) arguments.push_back(Content(f, a, random));
    const Result<std::vector<ir::HostTensor>> want = ir::Evaluate(f, arguments);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    LoweredRunner runner(modules[k], kernels);
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool rng = f.arguments()[i].kind == ir::ArgumentKind::kRng;
      ASSERT_TRUE(runner.Set(rng ? lower::Storage::kScalar : lower::Storage::kInput,
                             f.arguments()[i].name, arguments[i]));
    }
    std::vector<ir::HostTensor> first;
    for (int tasks = 1; tasks <= 3; ++tasks) {
      runner.Poison();
      const Status ran = runner.Run("eval", tasks);
      ASSERT_TRUE(ran.ok()) << ran.ToString();
      for (size_t r = 0; r < f.results().size(); ++r) {
        const ir::HostTensor got = runner.Result_("eval", f.results()[r].name).value();
        if (tasks > 1) {
          EXPECT_TRUE(got == first[r])
              << f.results()[r].name << " differs with " << tasks << " tasks";
          continue;
        }
        first.push_back(got);
        SCOPED_TRACE(f.results()[r].name);
        ExpectClose(got, (*want)[r], unit * cases[k].tolerance);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, EmitTest, ::testing::Values(DType::kF32, DType::kF64));

}  // namespace
}  // namespace hyper::testing
