// Gradients of node tests through the importer, in double, against finite differences.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "tests/onnx_backend/cases.h"

namespace hyper::onnx_backend {

// Whether ONNX marks the op differentiable, in any of its versions, or leaves the mark out where
// the op clearly is (kUnmarked in gradient_check.cc).
bool IsDifferentiable(const std::string& domain, const std::string& op);

struct GradientResult {
  enum Kind {
    kChecked,
    kNoGradient,  // refused by autodiff; `text` says why
    kNoFloats,    // no float32 or float64 operand or output to differentiate
    kNotImported,
    kFailed
  } kind = kFailed;
  std::string text;
};

// All float operands that the op can be differentiated in move at once: the inner product of the
// gradients (random cotangents on all float outputs) with random directions, and with single
// elements, must be the central difference quotient of the loss along them. `fault` scales the
// computed gradients, for tests of this check.
GradientResult CheckGradient(const NodeCase& node_case, double fault = 1.0);

}  // namespace hyper::onnx_backend
