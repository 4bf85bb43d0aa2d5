// Judging a tensor by its name and numbers, where the file does not say whether it is a parameter
// (part of import.h).
// Thread safety: pure functions.
#pragma once

#include <string>

#include "frontend/onnx/import.h"
#include "ir/types.h"

namespace hyper::onnx_frontend {

// Names that exporters invent for folded values; a tensor called so may be a weight or a number of
// the formula, and only its use tells.
bool IsGeneratedName(const std::string& name);

// Why a float tensor is probably a buffer (a table, a mask, a statistic of the data) although it is
// stored like a parameter: "holds whole numbers"; empty when nothing speaks for it. Freshly
// initialised parameters (all zeros, all ones, one small value, random) do not look like buffers.
std::string LooksLikeBuffer(const std::string& name, const ir::HostTensor& value);

// True when all elements are equal (false for none).
bool AllEqual(const ir::HostTensor& value);

// Tells in `suspicion` and notes which tensors of a finished plan are trained although they are
// probably no parameters, perhaps several that were merged, or copies of one that was untied. Only
// where the file has no record of the program.
void SuspectParameters(const LoadedModel& model, ParameterPlan* plan);

}  // namespace hyper::onnx_frontend
