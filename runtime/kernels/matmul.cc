// dot by oneDNN's matmul: strided operands as they lie, accumulation by a sum post-op.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/kernels/dot_plan.h"
#include "runtime/kernels/library_plan.h"
#include "runtime/kernels/onednn_util.h"

namespace hyper::runtime {
namespace {

StridedOperand StridedOf(const program::Operand& operand) {
  return {ir::Dims(operand.dims().begin(), operand.dims().end()),
          ir::Dims(operand.strides().begin(), operand.strides().end())};
}

// The library wants the strides of its two matrix dims to nest; an extent of 1 may carry any.
dnnl::memory::desc MatrixDesc(StridedOperand operand) {
  const size_t rank = operand.dims.size();
  int64_t& outer = operand.strides[rank - 2];
  int64_t& inner = operand.strides[rank - 1];
  const int64_t rows = operand.dims[rank - 2];
  const int64_t columns = operand.dims[rank - 1];
  if (rows == 1 && columns == 1) {
    outer = inner = 1;
  } else if (columns == 1) {
    // A column: either its rows are contiguous (a transposed row) or it is a column of a matrix.
    inner = outer == 1 ? rows : 1;
  } else if (rows == 1) {
    outer = inner == 1 ? columns : 1;
  }
  int64_t span = std::max(rows * outer, columns * inner);
  for (size_t d = rank - 2; d-- > 0;) {
    if (operand.dims[d] == 1) operand.strides[d] = span;
    span = std::max(span, operand.dims[d] * operand.strides[d]);
  }
  return StridedF32(operand.dims, operand.strides);
}

// Rows of a right operand whose stride is a multiple of a page fall into the same cache sets: the
// product then runs at half its speed, and packing the operand first costs a few percent.
bool HasAliasingRows(const StridedOperand& operand) {
  const size_t rank = operand.dims.size();
  constexpr int64_t kPageElements = 1024;
  return rank == 2 && operand.strides[1] == 1 && operand.dims[1] > 1 &&
         operand.strides[0] % kPageElements == 0;
}

}  // namespace

Result<LibraryPlan> PlanMatmul(const ir::Attributes& attributes, Operands operands, int64_t cap) {
  if (operands.size() < 3) return DataLoss("matmul needs three operands");
  for (const program::Operand& operand : operands.first(3)) {
    if (operand.dtype() != program::F32) {
      return Unimplemented(fmt::format("onednn.matmul computes f32, operand '{}' is {}",
                                       operand.name(), ir::DTypeName(DTypeOf(operand.dtype()))));
    }
  }
  HYPER_ASSIGN_OR_RETURN(const DotPlan dot,
                         PlanDot(attributes.String("spec"), StridedOf(operands[0]),
                                 StridedOf(operands[1]), StridedOf(operands[2])));
  if (dot.k == 0 || TypeOf(operands[2]).elements() == 0) return LibraryPlan{.reference = true};
  dnnl::primitive_attr attr = UserScratchpad();
  if (operands[2].access() == program::ACCUMULATE) {
    dnnl::post_ops post;
    post.append_sum(1.0F);
    attr.set_post_ops(post);
  }
  const dnnl::memory::desc a = MatrixDesc(dot.a);
  const dnnl::memory::desc b = MatrixDesc(dot.b);
  const dnnl::memory::desc y = MatrixDesc(dot.y);
  const dnnl::memory::desc packed(b.get_dims(), dnnl::memory::data_type::f32,
                                  dnnl::memory::format_tag::any);
  const auto plan = [&](const dnnl::matmul::primitive_desc& pd) {
    LibraryPlanner planner(operands);
    const auto left = planner.Input(dot.swapped ? 1 : 0, a, pd.src_desc());
    const auto right = planner.Input(dot.swapped ? 0 : 1, b, pd.weights_desc());
    const auto result = planner.Output(2, y, pd.dst_desc(), /*adds=*/true);
    return planner.Finish([pd] { return dnnl::matmul(pd); },
                          {{DNNL_ARG_SRC, left}, {DNNL_ARG_WEIGHTS, right}, {DNNL_ARG_DST, result}},
                          pd.scratchpad_desc());
  };
  const auto describe = [&](const dnnl::memory::desc& right) {
    return dnnl::matmul::primitive_desc(CpuEngine(), a, right, y, attr);
  };
  PlanChoice choice(cap);
  if (HasAliasingRows(dot.b) && choice.Offer(describe(packed), plan)) return choice.Take();
  if (choice.Offer(describe(b), plan)) return choice.Take();
  return choice.empty() ? plan(describe(b)) : choice.Take();
}

}  // namespace hyper::runtime
