// Do the names under `data` in a strategy fit the inputs of a model?
// Thread safety: pure functions.
#pragma once

#include "base/diagnostics.h"
#include "frontend/onnx/load.h"
#include "frontend/strategy/strategy.h"
#include "ir/graph.h"

namespace hyper::tools {

// Names under `data` that are neither inputs of the model nor labels of a loss, and labels without
// data. Errors point at the strategy. Without a `data` block nothing is checked: a bundle may be
// compiled without data, then it cannot be run.
void CheckDataNames(const onnx_frontend::LoadedModel& model, const strategy::Strategy& strategy,
                    Diagnostics* diagnostics);

// The model's inputs in the finished module: those in use need data, the others have no room for
// it (inputs of which only the shape counts).
void CheckDataInputs(const onnx_frontend::LoadedModel& model, const ir::Module& module,
                     const strategy::Strategy& strategy, Diagnostics* diagnostics);

}  // namespace hyper::tools
