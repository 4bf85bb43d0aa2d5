// The tensors among which parameters are looked for (part of import.h): what the file holds, with
// merged, folded and removed ones put right again as far as the file tells.
// Thread safety: pure function.
#pragma once

#include "frontend/onnx/import.h"

namespace hyper::onnx_frontend {

// Fills tensors, index, operands, views and notes; nothing is decided about the tensors yet.
// `restore`: see ImportOptions::restore_parameters.
ParameterPlan CollectParameterTensors(const LoadedModel& model, bool restore);

// "a, b, c and 4 more"
std::string ShortList(const std::vector<std::string>& names, size_t most = 6);

}  // namespace hyper::onnx_frontend
