// Every case is lowered, emitted, compiled and run with 1, 2 and 3 tasks (equal bits) and compared
// with the reference interpreter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>

#include "ir/builder.h"
#include "ir/float16.h"
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

// One function, lowered and compiled. `runner` is there when `status` is ok.
struct Compiled {
  explicit Compiled(const ir::Function& f) {
    ir::Module module;
    module.functions.push_back(f);
    lowered = lower::Lower(module, {}).value();
    status = kernels.Add(lowered);
    if (status.ok()) status = kernels.Compile();
    if (status.ok()) runner.emplace(lowered, kernels);
  }
  lower::LoweredModule lowered;
  KernelSet kernels;
  Status status;
  std::optional<LoweredRunner> runner;
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
    case DType::kF16: return Fill<uint16_t>(type, [&] { return ir::HalfBits(real()); });
    case DType::kBF16: return Fill<uint16_t>(type, [&] { return ir::BFloat16Bits(real()); });
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
  const double unit = dtype == DType::kF32    ? 2e-7
                      : dtype == DType::kF16  ? 2e-3
                      : dtype == DType::kBF16 ? 1.6e-2
                                              : 2e-15;
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

// Every half, and floats around all their rounding boundaries.
TEST(EmitHalf, ConversionsAreExactAndRoundToNearestEven) {
  for (const DType half : {DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(ir::DTypeName(half));
    std::vector<uint16_t> halves(1 << 16);
    for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
    std::vector<double> numbers;
    const auto value = [&](uint16_t bits) {
      return half == DType::kF16 ? ir::HalfToDouble(bits) : ir::BFloat16ToDouble(bits);
    };
    for (uint16_t bits = 0; value(bits) < INFINITY; ++bits) {
      const double middle = (value(bits) + std::min(value(bits + 1), 3e38)) / 2;
      for (const double x : {middle, std::nextafter(middle, 0), std::nextafter(middle, INFINITY),
                             static_cast<double>(std::nextafterf(static_cast<float>(middle), 0))}) {
        numbers.push_back(x);
        numbers.push_back(-x);
      }
    }
    for (const double x : {0.0, -0.0, 65504.0, 65519.99, 65520.0, 1e30, 3.4e38, 1e300, 0.3,
                           static_cast<double>(INFINITY), -static_cast<double>(INFINITY)}) {
      numbers.push_back(x);
    }
    const auto n = static_cast<int64_t>(numbers.size());
    ir::Function f("eval");
    ir::Builder b(&f);
    const ir::ValueId x = f.AddArgument({half, {1 << 16}}, ir::ArgumentKind::kInput, "x");
    const ir::ValueId y = f.AddArgument({DType::kF64, {n}}, ir::ArgumentKind::kInput, "y");
    f.AddResult(b.Cast(DType::kF32, x), "widened");
    f.AddResult(b.Cast(half, y), "rounded");
    f.AddResult(b.Cast(half, b.Cast(DType::kF32, y)), "rounded_single");
    Compiled compiled(f);
    ASSERT_TRUE(compiled.status.ok()) << compiled.status.ToString();
    LoweredRunner& runner = *compiled.runner;
    const std::vector<ir::HostTensor> arguments = {
        ir::HostTensor::FromVector(half, {1 << 16}, halves),
        ir::HostTensor::FromVector(DType::kF64, {n}, numbers)};
    runner.Set(lower::Storage::kInput, "x", arguments[0]);
    runner.Set(lower::Storage::kInput, "y", arguments[1]);
    ASSERT_TRUE(runner.Run("eval", 1).ok());
    const auto want = ir::Evaluate(f, arguments);
    ASSERT_TRUE(want.ok());
    for (size_t r = 0; r < want->size(); ++r) {
      const std::string& name = f.results()[r].name;
      const ir::HostTensor got = runner.Result_("eval", name).value();
      for (int64_t i = 0; i < got.type().elements(); ++i) {
        const double a = got.ElementAsDouble(i), w = (*want)[r].ElementAsDouble(i);
        ASSERT_TRUE(std::isnan(w) ? std::isnan(a) : a == w && std::signbit(a) == std::signbit(w))
            << name << " " << i << ": " << a << " for " << w;
      }
    }
  }
}

// Indices are data: one outside its axis writes nowhere, neither in the guards around the result
// nor in another place of it.
TEST(EmitScatter, IndicesOutsideWriteNowhere) {
  for (const char* reduction : {"none", "sum", "prod", "max", "min"}) {
    SCOPED_TRACE(reduction);
    ir::Function f("eval");
    ir::Builder b(&f);
    const auto argument = [&](DType dtype, ir::Dims dims, const char* name) {
      return f.AddArgument({dtype, std::move(dims)}, ir::ArgumentKind::kInput, name);
    };
    const ir::ValueId x = argument(DType::kF32, {3, 2}, "x");
    const ir::ValueId at = argument(DType::kI64, {4, 2}, "at");
    const ir::ValueId u = argument(DType::kF32, {4, 2}, "u");
    f.AddResult(b.Add1("scatter_elements", {x, at, u},
                       {{"axis", int64_t{0}}, {"reduction", std::string(reduction)}}),
                "y");
    Compiled compiled(f);
    ASSERT_TRUE(compiled.status.ok()) << compiled.status.ToString();
    LoweredRunner& runner = *compiled.runner;
    const std::vector<float> values = {1, 2, 3, 4, 5, 6};
    const auto input = [&](const char* name, const ir::HostTensor& value) {
      ASSERT_TRUE(runner.Set(lower::Storage::kInput, name, value));
    };
    input("x", ir::HostTensor::FromVector(DType::kF32, {3, 2}, values));
    input("at", ir::HostTensor::FromVector<int64_t>(
                    DType::kI64, {4, 2},
                    {3, -4, INT64_MAX, INT64_MIN, 1000, -1000, int64_t{1} << 40, 3}));
    input("u", ir::HostTensor::FromVector<float>(DType::kF32, {4, 2}, {9, 9, 9, 9, 9, 9, 9, 9}));
    runner.Poison();
    const Status ran = runner.Run("eval", 2);
    ASSERT_TRUE(ran.ok()) << ran.ToString();
    const ir::HostTensor y = runner.Result_("eval", "y").value();
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(y.ElementAsDouble(i), values[static_cast<size_t>(i)]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, EmitTest,
                         ::testing::Values(DType::kF32, DType::kF64, DType::kF16, DType::kBF16));

}  // namespace
}  // namespace hyper::testing
