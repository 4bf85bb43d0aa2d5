// The p-norm in two halves around a sum, for pools and normalizations.
#pragma once

#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {

// |x|^p element by element. f16 and bf16 become f32, so that powers do not overflow. Fails when
// p is below 1.
ValueId LpPowers(NodeContext& c, ValueId x, double p);
// sum^(1/p); 0 at 0 with gradient 0, where the slope of the root is infinite.
ValueId LpRoot(NodeContext& c, ValueId sum, double p);

}  // namespace hyper::onnx_frontend
