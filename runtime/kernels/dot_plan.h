// Maps a dot-general on strided operands to one batched matrix product.
#pragma once

#include <string_view>

#include "base/status.h"
#include "ir/types.h"

namespace hyper::runtime {

struct StridedOperand {
  ir::Dims dims;
  ir::Dims strides;  // elements
};

// y[batch, m, n] = sum_k a[batch, m, k] b[batch, k, n]; every operand has the batch dims (extent 1
// where it is broadcast) and then its two matrix dims.
struct DotPlan {
  StridedOperand a;
  StridedOperand b;
  StridedOperand y;
  bool swapped = false;  // a and b changed places, so that y has unit stride along n
  int64_t k = 1;
};

// `spec` as in core op dot. kUnimplemented when the contracted dims do not collapse into one or no
// matrix dim of y has unit stride: lowering copies such operands first.
Result<DotPlan> PlanDot(std::string_view spec, const StridedOperand& a, const StridedOperand& b,
                        const StridedOperand& y);

}  // namespace hyper::runtime
