// Do the names under `data` in a strategy fit the inputs of a model?
// Thread safety: pure functions.
#pragma once

#include "base/diagnostics.h"
#include "frontend/onnx/load.h"
#include "frontend/strategy/strategy.h"

namespace hyper::tools {

// Every input of the model and every label that a loss adds needs data, and nothing else does.
// Errors point at the strategy. Without a `data` block nothing is checked: a bundle may be compiled
// without data, then it cannot be run.
void CheckDataNames(const onnx_frontend::LoadedModel& model, const strategy::Strategy& strategy,
                    Diagnostics* diagnostics);

}  // namespace hyper::tools
