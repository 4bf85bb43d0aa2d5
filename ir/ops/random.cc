// Random numbers: counter-based, so a mask depends on seed, step, op id and logical index alone.
#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

InferResult InferRandomUniform(Types in, const Attributes& a) {
  HYPER_RETURN_IF_ERROR(ExpectDType(in, 0, DType::kI64, "seed, step, global micro-batch"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 0, {3}, "seed, step, global micro-batch"));
  HYPER_RETURN_IF_ERROR(ExpectEach("shape", a.GetDims("shape"), 0));
  if (!IsFloat(a.GetDType("dtype"))) {
    return InvalidArgument("dtype is " + std::string(DTypeName(a.GetDType("dtype"))) +
                           ", expected a float type");
  }
  return std::vector<TensorType>{{a.GetDType("dtype"), a.GetDims("shape")}};
}

}  // namespace

void RegisterRandomOps(OpRegistry& registry) {
  registry.Add({
      .name = "random_uniform",
      .family = "random",
      .summary = "u in [0, 1) on the grid of 2^-24, equal in every float dtype: Philox4x32-10 "
                 "keyed by seed and op id, counted by step, micro-batch and element",
      .min_inputs = 1,
      .max_inputs = 1,
      .outputs = 1,
      .attributes = {{"shape", AttributeKind::kDims, "output dims", std::nullopt},
                     {"dtype", AttributeKind::kDType, "float type of u", std::nullopt}},
      .infer = InferRandomUniform,
      .gradient = ZeroGradient{"the draw depends on no float input"},
      .sharding = ShardingFunction([](Types, Types out, const Attributes&) {
        Letters pool;
        ShardingFactors f;
        f.outputs = {pool.Next(out[0].rank())};
        f.inputs = {pool.Next(1)};
        // Drawn whole by every rank: an element's number in the whole tensor decides its value.
        f.replicated = f.inputs[0] + f.outputs[0];
        return f;
      }),
      .cost = ElementCost(20),  // ten rounds of two multiplications make four words
      .saved = SavedForBackward{},
      .in_place = std::vector<InPlaceRule>{},
      .cpu_kernels = {"generated", "reference"},
  });
}

}  // namespace hyper::ir
