// What the builder and the verifier both ask of a node before it may exist: declared attributes of
// the declared kinds, the arity of the record, types from the record's inference.
// Thread safety: pure functions.
#pragma once

#include <span>
#include <vector>

#include "base/status.h"
#include "ir/op_def.h"

namespace hyper::ir {

// Fills in defaults; fails on missing, unknown or wrongly typed attributes (an int is taken for a
// float).
Status NormalizeAttributes(const OpDef& op, Attributes* attributes);

// Output types of the op, or why it does not apply. Never throws.
Result<std::vector<TensorType>> InferChecked(const OpDef& op, std::span<const TensorType> inputs,
                                             const Attributes& attributes);

// Extents are not negative and the byte count stays below 2^56, so that no arithmetic on sizes can
// overflow.
Status CheckType(const TensorType& type);

}  // namespace hyper::ir
