// Gradients against finite differences in double, for all float inputs of an op at once with random
// cotangents on all float outputs.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"

namespace hyper::ir::test {

// How the elements of one input are drawn. Elements of a float input are pairwise distinct and at
// least 0.01 away from 0 and from each other, so that no step crosses a tie.
enum class Draw {
  kAny,        // (-1.6, 1.6)
  kPositive,   // (0.2, 1.8)
  kUnit,       // (-0.85, 0.85)
  kAboveOne,   // (1.2, 2.8)
  kWithZeros,  // as kAny, about every third element exactly 0
  kIndex,      // i64 in [-bound, bound)
  kCount,      // i64 in [0, bound)
  kTap,        // u8 in [0, bound)
};

struct InputSpec {
  Dims dims;
  Draw draw = Draw::kAny;
  int64_t bound = 1;
  bool differentiate = true;  // false: a constant of the check
};

struct GradientCase {
  std::string name;
  std::string op;
  std::vector<InputSpec> inputs;
  Attributes attributes;
  int cotangents = -1;  // float outputs that get one, from the first on (-1: all)
};

struct GradientReport {
  double error = 0;      // largest |gradient - difference| / (1 + largest |difference|)
  double magnitude = 0;  // largest |difference|
  int64_t elements = 0;  // of all float inputs
  std::string worst;     // where `error` was found
};

// Error bound that a right gradient keeps and one wrong by a percent breaks.
inline constexpr double kGradientTolerance = 1e-7;

// `fault` multiplies the gradients before the comparison (1: none).
Result<GradientReport> CheckGradient(const GradientCase& test, double fault);

// Runs the check, and its twin with gradients wrong by one percent, which must be seen.
void ExpectGradient(const GradientCase& test);

}  // namespace hyper::ir::test
