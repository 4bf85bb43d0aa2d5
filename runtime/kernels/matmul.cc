// dot by oneDNN's matmul: strided operands as they lie, accumulation by a sum post-op.
#include <cstring>

#include "runtime/kernels/dot_plan.h"
#include "runtime/kernels/kernels.h"
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

class Matmul : public PreparedKernel {
 public:
  Matmul(OneDnnCall call, dnnl::stream stream) : call_(std::move(call)), stream_(std::move(stream)) {}
  Status Run(const Team&) override { return call_.Run(stream_.get()); }

 private:
  OneDnnCall call_;
  dnnl::stream stream_;
};

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
    const dnnl::engine engine = CpuEngine();
    const program::Operand& left = operands[plan.swapped ? 1 : 0];
    const program::Operand& right = operands[plan.swapped ? 0 : 1];
    dnnl::primitive_attr attr;
    if (operands[2].access() == program::ACCUMULATE) {
      dnnl::post_ops post;
      post.append_sum(1.0F);
      attr.set_post_ops(post);
    }
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc pd(engine, MatrixDesc(plan.a), MatrixDesc(plan.b),
                                          MatrixDesc(plan.y), attr);
    std::vector<std::pair<int, dnnl::memory>> arguments = {
        {DNNL_ARG_SRC, {pd.src_desc(), engine, context.arena + left.offset()}},
        {DNNL_ARG_WEIGHTS, {pd.weights_desc(), engine, context.arena + right.offset()}},
        {DNNL_ARG_DST, {pd.dst_desc(), engine, context.arena + operands[2].offset()}},
    };
    arguments.push_back(ScratchArgument(pd.scratchpad_desc(), engine, context.scratch, 0));
    return std::unique_ptr<PreparedKernel>(std::make_unique<Matmul>(
        OneDnnCall(dnnl::matmul(pd), std::move(arguments)), dnnl::stream(engine)));
  });
}

}  // namespace hyper::runtime
