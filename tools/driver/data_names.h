// Do the names under `data` in a strategy fit the inputs of a model?
// Thread safety: pure functions.
#pragma once

#include "base/diagnostics.h"
#include "base/file.h"
#include "frontend/onnx/load.h"
#include "frontend/strategy/strategy.h"
#include "ir/graph.h"

namespace hyper::tools {

// Names under `data` that are neither inputs of the model nor labels of a loss, and labels without
// data. Errors point at the strategy. Without a `data` block nothing is checked: a bundle may be
// compiled without data, then it cannot be run.
// `labels_known`: false when a loss was refused, so that any name may be its label; `inputs_known`:
// false when an entry of data.inputs may be missing only since it was refused.
void CheckDataNames(const onnx_frontend::LoadedModel& model, const strategy::Strategy& strategy,
                    Diagnostics* diagnostics, bool labels_known = true, bool inputs_known = true);

// Warns of data files that this machine does not have: another may run the bundle, or --set name
// others. Errors of `data` are no reason not to look at the rest of it.
void WarnOfMissingData(const strategy::Strategy& strategy, FileSystem* fs,
                       Diagnostics* diagnostics);

// The model's inputs in the finished module: those in use need data, the others have no room for
// it (inputs of which only the shape counts).
void CheckDataInputs(const onnx_frontend::LoadedModel& model, const ir::Module& module,
                     const strategy::Strategy& strategy, Diagnostics* diagnostics);

}  // namespace hyper::tools
