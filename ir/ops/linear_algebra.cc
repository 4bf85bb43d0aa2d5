// Linear algebra on batches of square matrices: determinant and its adjoint.
#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

Status ExpectMatrixType(Types in, int i) {
  const DType dtype = in[static_cast<size_t>(i)].dtype;
  if (dtype == DType::kF32 || dtype == DType::kF64) return Status::Ok();
  return InvalidArgument("input " + std::to_string(i) + " is " + std::string(DTypeName(dtype)) +
                         ", expected f32 or f64");
}

Status ExpectSquare(Types in, int i) {
  HYPER_RETURN_IF_ERROR(ExpectMatrixType(in, i));
  HYPER_RETURN_IF_ERROR(ExpectMinRank(in, i, 2));
  const Dims& dims = in[static_cast<size_t>(i)].dims;
  return ExpectDim(in, i, static_cast<int>(dims.size()) - 1, dims[dims.size() - 2],
                   "the matrices are square");
}

Dims BatchOf(const Dims& matrices) { return Dims(matrices.begin(), matrices.end() - 2); }

Dims PivotDims(const Dims& matrices) {
  Dims dims = BatchOf(matrices);
  dims.push_back(2);
  dims.push_back(matrices.back());
  return dims;
}

InferResult InferDet(Types in, const Attributes&) {
  HYPER_RETURN_IF_ERROR(ExpectSquare(in, 0));
  const Dims& dims = in[0].dims;
  return std::vector<TensorType>{
      {in[0].dtype, BatchOf(dims)}, in[0], {DType::kI32, PivotDims(dims)}};
}

InferResult InferDetGrad(Types in, const Attributes&) {
  HYPER_RETURN_IF_ERROR(ExpectSquare(in, 1));
  HYPER_RETURN_IF_ERROR(ExpectDType(in, 0, in[1].dtype, "as input 1"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, BatchOf(in[1].dims), "one value per matrix"));
  HYPER_RETURN_IF_ERROR(ExpectDType(in, 2, DType::kI32, "the pivots of det"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 2, PivotDims(in[1].dims), "two rows per matrix"));
  return std::vector<TensorType>{in[1]};
}

Status DetGradient(const GradientContext& c) {
  if (c.output_grads[1].valid()) {
    return Unimplemented("the factors of det have no gradient, only its value has");
  }
  if (c.output_grads[0].valid()) {
    c.input_grads[0] =
        c.builder.Add1("det_grad", {c.output_grads[0], c.node.outputs[1], c.node.outputs[2]});
  }
  return Status::Ok();
}

// Batch dims pass through, those of the matrices do not split.
ShardingRule MatrixSharding(bool backward) {
  return ShardingFunction([=](Types in, Types, const Attributes&) {
    Letters letters;
    const std::string full = letters.Next(in[backward ? 1 : 0].rank());
    const std::string batch = full.substr(0, full.size() - 2);
    const std::string two = letters.Next(1);
    const std::string pivots = batch + two + full.back();
    ShardingFactors f;
    if (backward) {
      f.inputs = {batch, full, pivots};
      f.outputs = {full};
    } else {
      f.inputs = {full};
      f.outputs = {batch, full, pivots};
    }
    f.replicated = full.substr(full.size() - 2) + two;
    return f;
  });
}

CostFunction CubicCost(double factor, size_t matrices) {
  return [=](Types in, Types out, const Attributes&) {
    const TensorType& x = in[matrices];
    return MemoryCost(
        in, out, factor * static_cast<double>(x.elements()) * static_cast<double>(x.dims.back()));
  };
}

}  // namespace

void RegisterLinearAlgebraOps(OpRegistry& registry) {
  registry.Add({
      .name = "det",
      .family = "linear algebra",
      .summary = "determinant of the matrices in the last two dims, with the LU factors and the "
                 "row and column swaps of full pivoting that det_grad reads",
      .min_inputs = 1,
      .max_inputs = 1,
      .outputs = 3,
      .attributes = {},
      .infer = InferDet,
      .gradient = GradientFunction(DetGradient),
      .sharding = MatrixSharding(false),
      .cost = CubicCost(2.0 / 3, 0),
      .saved = SavedForBackward{{}, {1, 2}},
      .in_place = std::vector<InPlaceRule>{},
      .cpu_kernels = {"generated", "reference"},
  });
  registry.Add({
      .name = "det_grad",
      .family = "linear algebra",
      .summary = "g times the matrix of cofactors, from the factors of det; right for singular "
                 "matrices, too",
      .min_inputs = 3,
      .max_inputs = 3,
      .outputs = 1,
      .attributes = {},
      .infer = InferDetGrad,
      .gradient = NotDifferentiable{"second derivatives are not supported"},
      .sharding = MatrixSharding(true),
      .cost = CubicCost(4.0 / 3, 1),
      .saved = SavedForBackward{},
      .in_place = std::vector<InPlaceRule>{},
      .cpu_kernels = {"generated", "reference"},
  });
}

}  // namespace hyper::ir
