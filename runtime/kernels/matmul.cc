// dot by oneDNN's matmul: strided operands as they lie, accumulation by a sum post-op.
#include <cstring>

#include "runtime/kernels/dot_plan.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/onednn_assembler.h"
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

// No elements to compute, or nothing to sum: the result is left alone or becomes zero.
class EmptyProduct : public PreparedKernel {
 public:
  EmptyProduct(program::Operand result, char* arena) : result_(std::move(result)), arena_(arena) {
    zeros_.resize(static_cast<size_t>(TypeOf(result_).bytes()));
  }
  Status Run(const Team&) override {
    if (result_.access() != program::ACCUMULATE) CopyFromDense(result_, zeros_.data(), arena_);
    return Status::Ok();
  }

 private:
  program::Operand result_;
  char* arena_;
  std::vector<std::byte> zeros_;
};

}  // namespace

Result<std::unique_ptr<PreparedKernel>> PrepareMatmul(const ir::Attributes& attributes,
                                                      Operands operands,
                                                      const PrepareContext& context) {
  if (operands.size() < 3) return DataLoss("matmul needs three operands");
  for (const program::Operand& operand : operands.first(3)) {
    if (operand.dtype() != program::F32) {
      return Unimplemented(fmt::format("onednn.matmul computes f32, operand '{}' is {}",
                                       operand.name(), ir::DTypeName(DTypeOf(operand.dtype()))));
    }
  }
  HYPER_ASSIGN_OR_RETURN(const DotPlan plan,
                         PlanDot(attributes.String("spec"), StridedOf(operands[0]),
                                 StridedOf(operands[1]), StridedOf(operands[2])));
  if (plan.k == 0 || TypeOf(operands[2]).elements() == 0) {
    return std::unique_ptr<PreparedKernel>(
        std::make_unique<EmptyProduct>(operands[2], context.arena));
  }
  return Guard([&]() -> Result<std::unique_ptr<PreparedKernel>> {
    const program::Operand& left = operands[plan.swapped ? 1 : 0];
    const program::Operand& right = operands[plan.swapped ? 0 : 1];
    dnnl::primitive_attr attr = UserScratchpad();
    if (operands[2].access() == program::ACCUMULATE) {
      dnnl::post_ops post;
      post.append_sum(1.0F);
      attr.set_post_ops(post);
    }
    const dnnl::memory::desc a = MatrixDesc(plan.a);
    const dnnl::memory::desc b = MatrixDesc(plan.b);
    const dnnl::memory::desc y = MatrixDesc(plan.y);
    const dnnl::memory::desc packed(b.get_dims(), dnnl::memory::data_type::f32,
                                    dnnl::memory::format_tag::any);
    const dnnl::matmul::primitive_desc pd(CpuEngine(), a, HasAliasingRows(plan.b) ? packed : b, y,
                                          attr);
    PrimitiveAssembler assembler(context);
    return assembler.Finish(dnnl::matmul(pd),
                            {{DNNL_ARG_SRC, assembler.Input(left, a, pd.src_desc())},
                             {DNNL_ARG_WEIGHTS, assembler.Input(right, b, pd.weights_desc())},
                             {DNNL_ARG_DST, assembler.Output(operands[2], y, pd.dst_desc(), true)}},
                            pd.scratchpad_desc());
  });
}

}  // namespace hyper::runtime
