// Cases whose expected outputs come from a random generator of their own: what is certain about
// the outputs is checked instead of their values.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "tests/onnx_backend/cases.h"

namespace hyper::onnx_backend {

// Dropout in training with a ratio above zero; Bernoulli.
bool HasRandomOutputs(const NodeCase& node_case);

// Types of all outputs; Dropout: kept elements are scaled by 1 / (1 - ratio), the others zero, as
// the mask says, and the share of dropped ones is near the ratio; Bernoulli: zeros and ones, ones
// about as often as the probabilities say. "" or what is wrong.
std::string RandomDifference(const NodeCase& node_case, const std::vector<ir::HostTensor>& got,
                             const std::vector<ir::HostTensor>& want);

}  // namespace hyper::onnx_backend
