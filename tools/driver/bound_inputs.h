// Values of model.bind as tensors.
// Thread safety: pure function of files.
#pragma once

#include <map>
#include <string>

#include "base/diagnostics.h"
#include "frontend/onnx/import.h"
#include "frontend/strategy/strategy.h"

namespace hyper::tools {

// Numbers of the strategy as i64, f64 or bool, .npy files in their own type. A file that cannot be
// read is an error at its place in the strategy, and left out.
std::map<std::string, onnx_frontend::BoundInput> BoundInputsOf(const strategy::Strategy& strategy,
                                                               Diagnostics* diagnostics);

}  // namespace hyper::tools
