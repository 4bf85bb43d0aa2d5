// The meaning of every scalar operator, on one element: the constant folder and the reference
// kernels evaluate with it. Documented for kernel writers in ir/text.md ("Scalar semantics").
// Thread safety: pure functions.
#pragma once

#include <span>

#include "base/status.h"
#include "ir/expr.h"

namespace hyper::ir {

// A scalar of any dtype: `f` for floats, `i` for integers and bool (u64 as its bit pattern).
struct Scalar {
  double f = 0;
  int64_t i = 0;
};

// Rounds to the float dtype, or wraps the integer to its width.
double RoundFloat(DType dtype, double x);
int64_t WrapInt(DType dtype, int64_t x);

// Conversion of a value of `from` to `to`: floats round to nearest even; float to integer
// truncates, saturates and takes NaN to 0; integer to integer wraps; to bool is "not zero".
Scalar CastScalar(DType from, DType to, Scalar x);

// The value of `to` with the bits of a value of `from`, which is as wide; a bool is "not zero".
Scalar BitcastScalar(DType from, DType to, Scalar x);

// `dtype` is that of the operands (the second one for select). The result has ResultDType's type.
Scalar EvaluateScalar(ScalarOp op, DType dtype, std::span<const Scalar> args);

// Element of a host tensor, and a tensor of `elements` (as many as its type says).
Scalar ElementOf(const HostTensor& tensor, int64_t index);
HostTensor TensorOf(TensorType type, std::span<const Scalar> elements);

// Dtype of the result, or why the operator does not take these operands.
Result<DType> ResultDType(ScalarOp op, std::span<const DType> args);

}  // namespace hyper::ir
