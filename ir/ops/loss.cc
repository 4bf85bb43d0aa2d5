// Cross entropy over rows of logits, with ignored labels.
#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

Status ExpectLogits(Types in, int logits, int labels) {
  HYPER_RETURN_IF_ERROR(ExpectFloat(in, logits));
  HYPER_RETURN_IF_ERROR(ExpectRank(in, logits, 2));
  HYPER_RETURN_IF_ERROR(ExpectIndex(in, labels));
  const TensorType& x = in[static_cast<size_t>(logits)];
  HYPER_RETURN_IF_ERROR(ExpectDims(in, labels, {x.dims[0]}, "one label per row of logits"));
  if (x.dims[1] == 0 && x.dims[0] > 0) {
    return InvalidArgument("dim 1 of input " + std::to_string(logits) +
                           " is 0, expected at least 1 class");
  }
  return Status::Ok();
}

InferResult InferCrossEntropy(Types in, const Attributes&) {
  HYPER_RETURN_IF_ERROR(ExpectLogits(in, 0, 1));
  const TensorType row{in[0].dtype, {in[0].dims[0]}};
  return std::vector<TensorType>{row, row};
}

InferResult InferCrossEntropyGrad(Types in, const Attributes&) {
  HYPER_RETURN_IF_ERROR(ExpectLogits(in, 1, 2));
  const Dims rows = {in[1].dims[0]};
  HYPER_RETURN_IF_ERROR(ExpectDType(in, 0, in[1].dtype, "as input 1"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, rows, "one value per row of logits"));
  HYPER_RETURN_IF_ERROR(ExpectDType(in, 3, in[1].dtype, "as input 1"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 3, rows, "one value per row of logits"));
  return std::vector<TensorType>{in[1]};
}

Status CrossEntropyGradient(const GradientContext& c) {
  if (!c.wanted[0]) return Status::Ok();
  Builder& b = c.builder;
  const ValueId logits = c.node.inputs[0];
  const ValueId lse = c.node.outputs[1];
  ValueId sum;
  if (c.output_grads[0].valid()) {
    sum = b.Add1("cross_entropy_grad", {c.output_grads[0], logits, c.node.inputs[1], lse},
                 c.node.attributes);
  }
  if (c.output_grads[1].valid()) {  // d lse / d logits = softmax(logits)
    const TensorType type = b.type(logits);
    ExprBuilder e;
    const int shifted = e.Binary(ScalarOp::kSub, e.Input(0, type.dtype), e.Input(1, type.dtype));
    const int softmax = e.Unary(ScalarOp::kExp, shifted);
    sum = AddMaybe(b, sum,
                   b.Map(e.Build(e.Binary(ScalarOp::kMul, e.Input(2, type.dtype), softmax)),
                         {logits, b.Broadcast(lse, type.dims, {0}),
                          b.Broadcast(c.output_grads[1], type.dims, {0})}));
  }
  c.input_grads[0] = sum;
  return Status::Ok();
}

std::vector<AttributeDef> IgnoreAttributes() {
  return {{"ignore_index", AttributeKind::kInt, "label of rows that do not count",
           Attribute(int64_t{-100})},
          {"has_ignore", AttributeKind::kBool, "ignore_index is in force", Attribute(false)}};
}

}  // namespace

void RegisterLossOps(OpRegistry& registry) {
  registry.Add({
      .name = "cross_entropy",
      .family = "loss",
      .summary = "lse = log(sum(exp(logits))) per row, loss = lse - logits[label], 0 where the "
                 "label is ignored, NaN where it is no class",
      .min_inputs = 2,
      .max_inputs = 2,
      .outputs = 2,
      .attributes = IgnoreAttributes(),
      .infer = InferCrossEntropy,
      .gradient = GradientFunction(CrossEntropyGradient),
      .sharding = ShardingFunction([](Types, Types, const Attributes&) {
        return ShardingFactors{{"rc", "r"}, {"r", "r"}, "", "c", "sum"};
      }),
      .cost = ElementCost(4, true),
      .saved = SavedForBackward{{0, 1}, {1}},
      .in_place = std::vector<InPlaceRule>{},
      .cpu_kernels = {"generated", "reference"},
  });
  registry.Add({
      .name = "cross_entropy_grad",
      .family = "loss",
      .summary = "dlogits = g * (exp(logits - lse) - onehot(label)) per row, 0 in ignored rows",
      .min_inputs = 4,
      .max_inputs = 4,
      .outputs = 1,
      .attributes = IgnoreAttributes(),
      .infer = InferCrossEntropyGrad,
      .gradient = NotDifferentiable{"second derivatives are not supported"},
      .sharding = ShardingFunction([](Types, Types, const Attributes&) {
        return ShardingFactors{{"r", "rc", "r", "r"}, {"rc"}, "", "c", "sum"};
      }),
      .cost = ElementCost(4),
      .saved = SavedForBackward{},
      .in_place = std::vector<InPlaceRule>{{0, 1}},
      .cpu_kernels = {"generated", "reference"},
  });
}

}  // namespace hyper::ir
