// The chain rule for one operand of a map.
// Thread safety: as Builder.
#pragma once

#include <span>

#include "ir/builder.h"
#include "ir/expr.h"

namespace hyper::ir {

// Adds g * d as a map that reads only what it needs and returns it with element type `dtype`;
// returns g itself when d is one. operands[i] is the value that d reads as input i.
ValueId MultiplyByDerivative(Builder& builder, ValueId g, const Expr& d,
                             std::span<const ValueId> operands, DType dtype);

}  // namespace hyper::ir
