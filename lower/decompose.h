// Rewrites one function of a module into the form that grouping works on: normalization, softmax,
// loss and update ops become map, reduce and broadcast nodes (so that the one fuser handles them);
// sums of zero-padded pieces become concat; a sum that ends in an accumulator becomes a chain of
// accumulations; ops that compute on f16 and bf16 do so in f32 and round once (maps round every
// step, what only moves data moves halves). Which parts stay single ops is decided by ops that have
// kernels of their own. Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "ir/builder.h"
#include "ir/graph.h"

namespace hyper::lower {

enum class StepVariant {
  kPlain,  // not @step
  kFirst,  // first micro-batch: accumulators are overwritten
  kNext,   // later ones: accumulators are added to
};

// The result has only core ops; `accumulate` nodes are left only where the producer of the value
// adds to the accumulator itself. With `keep_ops` (reference kernels) nothing but the variant is
// applied.
Result<ir::Function> Decompose(const ir::Function& function, StepVariant variant, bool keep_ops);

// Families, each returns false for an op that is not its own. `inputs` are values of the builder's
// function; outputs are appended.
bool DecomposeNormalization(ir::Builder& b, const ir::Node& node,
                            const std::vector<ir::ValueId>& inputs,
                            std::vector<ir::ValueId>* outputs);
bool DecomposeSoftmax(ir::Builder& b, const ir::Node& node, const std::vector<ir::ValueId>& inputs,
                      std::vector<ir::ValueId>* outputs);
bool DecomposeUpdate(ir::Builder& b, const ir::Node& node, const std::vector<ir::ValueId>& inputs,
                     StepVariant variant, std::vector<ir::ValueId>* outputs);

}  // namespace hyper::lower
