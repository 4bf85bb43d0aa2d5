// Updates: accumulators, running statistics, optimizers. Output i takes over the storage of the
// tensor it updates.
#include "ir/ops/common.h"

namespace hyper::ir {
namespace {

constexpr int kRates = 2;  // lr, clip

// Inputs first.. of an optimizer are scalars: lr and clip of the parameter's dtype, then the
// optimizer's values in f64, the last an i64 step if `step`.
Status ExpectScalars(Types in, int first, DType dtype, bool step) {
  const int count = static_cast<int>(in.size());
  for (int i = first; i < count; ++i) {
    HYPER_RETURN_IF_ERROR(ExpectRank(in, i, 0));
    if (i < first + kRates) {
      HYPER_RETURN_IF_ERROR(ExpectDType(in, i, dtype, "as the parameter"));
    } else if (step && i == count - 1) {
      HYPER_RETURN_IF_ERROR(ExpectDType(in, i, DType::kI64, "the step number"));
    } else {
      HYPER_RETURN_IF_ERROR(ExpectDType(in, i, DType::kF64, "a value of the optimizer"));
    }
  }
  return Status::Ok();
}

// Inputs 0..tensors-1 have one float type, scalars follow; the inputs `updated` come back.
InferFunction InferUpdate(int tensors, std::vector<int> updated, bool step) {
  return [=](Types in, const Attributes&) -> InferResult {
    HYPER_RETURN_IF_ERROR(ExpectFloat(in, 0));
    for (int i = 1; i < tensors; ++i) {
      HYPER_RETURN_IF_ERROR(ExpectDType(in, i, in[0].dtype, "as input 0"));
      HYPER_RETURN_IF_ERROR(ExpectDims(in, i, in[0].dims, "as input 0"));
    }
    HYPER_RETURN_IF_ERROR(ExpectScalars(in, tensors, in[0].dtype, step));
    std::vector<TensorType> out;
    for (int i : updated) out.push_back(in[static_cast<size_t>(i)]);
    return out;
  };
}

Status ExpectScale(Types in, int i) {
  HYPER_RETURN_IF_ERROR(ExpectDType(in, i, DType::kI64, "micro-batch counts"));
  return ExpectDims(in, i, {2}, "micro-batches of the step, micro-batches that follow");
}

InferResult InferRunningUpdate(Types in, const Attributes&) {
  HYPER_RETURN_IF_ERROR(ExpectFloat(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectDType(in, 1, in[0].dtype, "as input 0"));
  HYPER_RETURN_IF_ERROR(ExpectDims(in, 1, in[0].dims, "as input 0"));
  HYPER_RETURN_IF_ERROR(ExpectScale(in, 2));
  return std::vector<TensorType>{in[0]};
}

InferResult InferStatWeight(Types in, const Attributes&) {
  HYPER_RETURN_IF_ERROR(ExpectFloat(in, 0));
  HYPER_RETURN_IF_ERROR(ExpectScale(in, 1));
  return std::vector<TensorType>{in[0]};
}

// Tensors of the parameter's shape share its letters; scalars have none.
ShardingFactors UpdateSharding(Types in, Types out, const Attributes&) {
  Letters pool;
  const std::string letters = pool.Next(in[0].rank());
  ShardingFactors f;
  for (const TensorType& t : in) {
    if (t.dims == in[0].dims && t.dtype == in[0].dtype) {
      f.inputs.push_back(letters);
      continue;
    }
    f.inputs.push_back(pool.Next(t.rank()));
    f.replicated += f.inputs.back();
  }
  f.outputs.assign(out.size(), letters);
  return f;
}

constexpr NotDifferentiable kUpdate{"updates run after the gradients are complete"};

AttributeDef FloatAttribute(std::string_view name, std::string_view doc,
                            std::optional<Attribute> value) {
  return {name, AttributeKind::kFloat, doc, std::move(value)};
}

// `updated[i]`: the input whose storage output i takes over.
OpDef Update(std::string_view name, std::string_view summary, int inputs, std::vector<int> updated,
             double flops) {
  OpDef def;
  def.name = name;
  def.family = "update";
  def.summary = summary;
  def.min_inputs = def.max_inputs = inputs;
  def.outputs = static_cast<int>(updated.size());
  def.gradient = kUpdate;
  def.sharding = ShardingFunction(UpdateSharding);
  def.cost = ElementCost(flops, true);
  def.saved = SavedForBackward{};
  std::vector<InPlaceRule> rules;
  for (size_t i = 0; i < updated.size(); ++i) rules.push_back({static_cast<int>(i), updated[i]});
  def.in_place = std::move(rules);
  def.has_side_effects = true;
  def.cpu_kernels = {"generated", "reference"};
  return def;
}

void RegisterAccumulators(OpRegistry& registry) {
  OpDef accumulate = Update("accumulate", "acc' = acc + value, in place", 2, {0}, 1);
  accumulate.infer = InferUpdate(2, {0}, false);
  registry.Add(std::move(accumulate));

  const AttributeDef momentum = FloatAttribute("momentum", "weight of the old value", std::nullopt);
  OpDef stat = Update("accumulate_stat", "acc' = acc * momentum + (1 - momentum) * value, in place",
                      2, {0}, 3);
  stat.attributes = {momentum};
  stat.infer = InferUpdate(2, {0}, false);
  registry.Add(std::move(stat));

  OpDef running = Update("running_update",
                         "state' = state * momentum^scale[0] + acc; scale[0]: micro-batches of "
                         "the whole step",
                         3, {0}, 2);
  running.attributes = {momentum};
  running.infer = InferRunningUpdate;
  registry.Add(std::move(running));

  OpDef weight = Update("stat_weight",
                        "acc' = acc * momentum^scale[1]; scale[1]: micro-batches of the step "
                        "after this replica's last",
                        2, {0}, 1);
  weight.attributes = {momentum};
  weight.infer = InferStatWeight;
  registry.Add(std::move(weight));
}

}  // namespace

void RegisterUpdateOps(OpRegistry& registry) {
  RegisterAccumulators(registry);

  OpDef sgd = Update("sgd",
                     "(param, grad, lr, clip, weight_decay): param' = param - lr * (grad * clip + "
                     "weight_decay * param)",
                     5, {0}, 4);
  sgd.infer = InferUpdate(2, {0}, false);
  registry.Add(std::move(sgd));

  OpDef momentum = Update("momentum",
                          "(param, grad, buf, lr, clip, momentum, weight_decay, step): g = grad * "
                          "clip + weight_decay * param; buf' = momentum * buf + g (g at step 1); "
                          "param' = param - lr * (nesterov ? g + momentum * buf' : buf')",
                          8, {0, 2}, 8);
  momentum.attributes = {{"nesterov", AttributeKind::kBool, "look ahead", Attribute(false)}};
  momentum.infer = InferUpdate(3, {0, 2}, true);
  registry.Add(std::move(momentum));

  OpDef adam = Update("adam",
                      "(param, grad, m, v, lr, clip, beta1, beta2, epsilon, weight_decay, step): "
                      "Adam with bias correction; weight decay as L2 or decoupled (AdamW); epsilon "
                      "outside the root",
                      11, {0, 2, 3}, 16);
  adam.attributes = {{"decoupled", AttributeKind::kBool, "AdamW", Attribute(false)}};
  adam.infer = InferUpdate(4, {0, 2, 3}, true);
  registry.Add(std::move(adam));

  OpDef norm = Update("grad_norm_sq", "f64 sum of squares of the gradient", 1, {}, 2);
  norm.outputs = 1;
  norm.infer = [](Types in, const Attributes&) -> InferResult {
    HYPER_RETURN_IF_ERROR(ExpectFloat(in, 0));
    return std::vector<TensorType>{{DType::kF64, {}}};
  };
  norm.sharding = ShardingFunction([](Types in, Types, const Attributes&) {
    ShardingFactors f;
    f.inputs = {Letters().Next(in[0].rank())};
    f.outputs = {""};
    f.reduced = f.inputs[0];
    return f;
  });
  norm.has_side_effects = false;
  registry.Add(std::move(norm));
}

}  // namespace hyper::ir
