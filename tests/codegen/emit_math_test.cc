// The prelude's vector functions against the C library in long double: at most 3 ulp, and the
// special values.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <vector>

#include "codegen/emit.h"

namespace hyper::codegen {
namespace {

struct MathFunction {
  const char* name;
  long double (*exact)(long double);
  double low, high;
};
const MathFunction kFunctions[] = {
    {"exp", expl, -80, 80},
    {"exp", expl, -1, 1},
    {"log", logl, 1e-3, 50},
    {"log", logl, 0.9, 1.1},
    {"log1p", log1pl, -0.9, 9},
    {"log1p", log1pl, -1e-6, 1e-6},
    {"expm1", expm1l, -5, 5},
    {"expm1", expm1l, -1e-4, 1e-4},
    {"tanh", tanhl, -12, 12},
    {"tanh", tanhl, -0.7, 0.7},
    {"erf", erfl, -6, 6},
    {"erf", erfl, -1.1, 1.1},
    {"sigmoid", [](long double x) { return 1 / (1 + expl(-x)); }, -40, 40}};
const char* const kNames[] = {"exp", "log", "log1p", "expm1", "tanh", "erf", "sigmoid"};

class EmitMath : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string folder = (std::filesystem::temp_directory_path() / "hyper_math_XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    std::ofstream out(folder + "/math.cc");
    out << CpuPrelude();
    for (const char* name : kNames) {
      for (const char* type : {"float", "double"}) {
        out << fmt::format(
            "extern \"C\" void {0}_{1}(const {1}* x, {1}* y, i64 n) {{\n"
            "#pragma omp simd\n for (i64 i = 0; i < n; ++i) y[i] = hy_{0}(x[i]); }}\n",
            name, type);
      }
    }
    out.close();
    const std::string command = fmt::format(
        "c++ -O3 -march=native -ffp-contract=off -fno-math-errno -fno-trapping-math -fopenmp-simd "
        "-shared -fPIC {0}/math.cc -o {0}/math.so",
        folder);
    ASSERT_EQ(std::system(command.c_str()), 0);
    library_ = dlopen((folder + "/math.so").c_str(), RTLD_NOW);
    std::filesystem::remove_all(folder);
    ASSERT_NE(library_, nullptr);
  }
  template <typename T>
  static std::vector<T> Run(const std::string& name, const std::vector<T>& x) {
    const std::string symbol = name + (sizeof(T) == 4 ? "_float" : "_double");
    auto* f = reinterpret_cast<void (*)(const T*, T*, int64_t)>(dlsym(library_, symbol.c_str()));
    std::vector<T> y(x.size());
    f(x.data(), y.data(), static_cast<int64_t>(x.size()));
    return y;
  }
  template <typename T>
  static void CheckAccuracy() {
    for (const MathFunction& f : kFunctions) {
      std::vector<T> x(20001);
      for (size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<T>(f.low + (f.high - f.low) * static_cast<double>(i) / 20000);
      }
      const std::vector<T> y = Run(f.name, x);
      for (size_t i = 0; i < x.size(); ++i) {
        const long double exact = f.exact(x[i]);
        const T magnitude = std::fabs(static_cast<T>(exact));
        const T ulp = std::nextafter(magnitude, static_cast<T>(INFINITY)) - magnitude;
        ASSERT_LE(std::fabs(static_cast<long double>(y[i]) - exact),
                  3 * static_cast<long double>(ulp))
            << f.name << "(" << x[i] << ") = " << y[i];
      }
    }
  }
  template <typename T>
  static void CheckSpecials() {
    const T inf = INFINITY, nan = NAN;
    const std::vector<T> x = {0, inf, -inf, nan, -1};
    const auto expect = [&](const char* name, const std::vector<T>& want) {
      const std::vector<T> y = Run(name, x);
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_TRUE(std::isnan(want[i]) ? std::isnan(y[i]) : y[i] == want[i])
            << name << " of " << x[i] << ": " << y[i];
      }
    };
    expect("exp", {1, inf, 0, nan});
    expect("log", {-inf, inf, nan, nan, nan});
    expect("log1p", {0, inf, nan, nan, -inf});
    expect("expm1", {0, inf, -1, nan});
    expect("tanh", {0, 1, -1, nan});
    expect("erf", {0, 1, -1, nan});
    expect("sigmoid", {T(0.5), 1, 0, nan});
  }
  static void* library_;
};
void* EmitMath::library_ = nullptr;

TEST_F(EmitMath, SinglePrecisionWithinThreeUlp) { CheckAccuracy<float>(); }
TEST_F(EmitMath, DoublePrecisionWithinThreeUlp) { CheckAccuracy<double>(); }
TEST_F(EmitMath, SpecialValues) {
  CheckSpecials<float>();
  CheckSpecials<double>();
}

}  // namespace
}  // namespace hyper::codegen
