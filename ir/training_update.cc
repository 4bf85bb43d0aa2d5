#include "ir/training_update.h"

namespace hyper::ir {
namespace {

const TensorType kStatScaleType{DType::kI64, {2}};

TensorType StateType(const Module& module, const RunningStatistic& s) {
  const PersistentTensor* tensor = module.FindTensor(s.state_name);
  HYPER_CHECK(tensor != nullptr, "running statistic '" + s.state_name + "' is no tensor");
  return tensor->type;
}

int LastArgument(const Function& function) {
  return static_cast<int>(function.arguments().size()) - 1;
}

// Runtime scalars of @update, created on first use.
class Scalars {
 public:
  explicit Scalars(Function* function) : function_(function) {}

  Result<ValueId> Get(std::string_view name, TensorType type) {
    const int at = function_->FindArgument(ArgumentKind::kScalar, name);
    if (at < 0) return function_->AddArgument(type, ArgumentKind::kScalar, std::string(name));
    const ValueId value = function_->arguments()[static_cast<size_t>(at)].value;
    if (function_->type(value) == type) return value;
    return Unimplemented(
        "parameters of element types " + std::string(DTypeName(function_->type(value).dtype)) +
        " and " + std::string(DTypeName(type.dtype)) + " in one model, expected a single one");
  }

 private:
  Function* function_;
};

std::vector<std::string> SlotsOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kSgd: return {};
    case OptimizerKind::kMomentum: return {"momentum"};
    case OptimizerKind::kAdam: return {"m", "v"};
  }
  return {};
}

struct Call {
  std::string_view op;
  Attributes attributes;
};

Call CallOf(const OptimizerSpec& o) {
  switch (o.kind) {
    case OptimizerKind::kSgd: return {"sgd", {}};
    case OptimizerKind::kMomentum: return {"momentum", {{"nesterov", o.nesterov}}};
    case OptimizerKind::kAdam: break;
  }
  return {"adam", {{"decoupled", o.decoupled_decay}}};
}

Status AppendParameterUpdate(Function& update, Scalars& scalars, const PersistentTensor& tensor,
                             const OptimizerSpec& optimizer) {
  if (tensor.type.dtype != DType::kF32 && tensor.type.dtype != DType::kF64) {
    return Unimplemented("parameter '" + tensor.name + "' is " + tensor.type.ToString() +
                         ", only f32 and f64 can be trained");
  }
  std::vector<ValueId> inputs;
  std::vector<int> updated;  // argument of each output
  inputs.push_back(update.AddArgument(tensor.type, ArgumentKind::kParameter, tensor.name));
  updated.push_back(LastArgument(update));
  inputs.push_back(update.AddArgument(tensor.type, ArgumentKind::kGradient, tensor.name));
  const std::vector<std::string> slots = SlotsOf(optimizer.kind);
  for (const std::string& slot : slots) {
    inputs.push_back(update.AddArgument(tensor.type, ArgumentKind::kOptimizer, tensor.name, slot));
    updated.push_back(LastArgument(update));
  }
  const TensorType scalar{tensor.type.dtype, {}};
  for (std::string_view name : {kScalarLearningRate, kScalarClip}) {
    HYPER_ASSIGN_OR_RETURN(const ValueId value, scalars.Get(name, scalar));
    inputs.push_back(value);
  }
  for (std::string_view name : OptimizerScalars(optimizer.kind)) {
    HYPER_ASSIGN_OR_RETURN(const ValueId value, scalars.Get(name, {DType::kF64, {}}));
    inputs.push_back(value);
  }
  if (optimizer.kind != OptimizerKind::kSgd) {
    HYPER_ASSIGN_OR_RETURN(const ValueId step, scalars.Get(kScalarStep, {DType::kI64, {}}));
    inputs.push_back(step);
  }
  Builder builder(&update);
  builder.SetContext(Role::kUpdate, -1, tensor.name);
  const Call call = CallOf(optimizer);
  auto outputs = builder.TryAdd(call.op, std::move(inputs), call.attributes);
  if (!outputs.ok()) return outputs.status().WithContext("parameter '" + tensor.name + "'");
  for (size_t i = 0; i < outputs->size(); ++i) {
    update.AddResult((*outputs)[i], i == 0 ? tensor.name : tensor.name + "." + slots[i - 1],
                     updated[i]);
  }
  return Status::Ok();
}

}  // namespace

std::span<const std::string_view> OptimizerScalars(OptimizerKind kind) {
  static constexpr std::string_view kSgd[] = {kScalarWeightDecay};
  static constexpr std::string_view kMomentum[] = {kScalarMomentum, kScalarWeightDecay};
  static constexpr std::string_view kAdam[] = {kScalarBeta1, kScalarBeta2, kScalarEpsilon,
                                               kScalarWeightDecay};
  switch (kind) {
    case OptimizerKind::kSgd: return kSgd;
    case OptimizerKind::kMomentum: return kMomentum;
    case OptimizerKind::kAdam: break;
  }
  return kAdam;
}

Result<Function> BuildStatWeight(const Module& module,
                                 const std::vector<RunningStatistic>& statistics) {
  Function function("stat_weight");
  Builder builder(&function);
  builder.SetContext(Role::kUpdate, -1, {});
  const ValueId scale = function.AddArgument(kStatScaleType, ArgumentKind::kScalar,
                                             std::string(kScalarStatisticScale));
  for (const RunningStatistic& s : statistics) {
    const ValueId acc =
        function.AddArgument(StateType(module, s), ArgumentKind::kStatistic, s.state_name);
    const int argument = LastArgument(function);
    HYPER_ASSIGN_OR_RETURN(const std::vector<ValueId> out,
                           builder.TryAdd("stat_weight", {acc, scale}, {{"momentum", s.momentum}}));
    function.AddResult(out[0], s.state_name, argument);
  }
  return function;
}

Result<Function> BuildGradNorm(const Module& module) {
  Function function("grad_norm");
  Builder builder(&function);
  builder.SetContext(Role::kUpdate, -1, {});
  for (const PersistentTensor& tensor : module.tensors) {
    if (tensor.kind != ArgumentKind::kParameter) continue;
    const ValueId gradient =
        function.AddArgument(tensor.type, ArgumentKind::kGradient, tensor.name);
    HYPER_ASSIGN_OR_RETURN(const std::vector<ValueId> out,
                           builder.TryAdd("grad_norm_sq", {gradient}));
    function.AddResult(out[0], "grad_norm_sq." + tensor.name);
  }
  return function;
}

Result<Function> BuildUpdate(const Module& module, const OptimizerSpec& optimizer,
                             const std::vector<RunningStatistic>& statistics) {
  Function update("update");
  Scalars scalars(&update);
  for (const PersistentTensor& tensor : module.tensors) {
    if (tensor.kind != ArgumentKind::kParameter) continue;
    HYPER_RETURN_IF_ERROR(AppendParameterUpdate(update, scalars, tensor, optimizer));
  }
  Builder builder(&update);
  for (const RunningStatistic& s : statistics) {
    const TensorType type = StateType(module, s);
    const ValueId state = update.AddArgument(type, ArgumentKind::kState, s.state_name);
    const int argument = LastArgument(update);
    const ValueId acc = update.AddArgument(type, ArgumentKind::kStatistic, s.state_name);
    HYPER_ASSIGN_OR_RETURN(const ValueId scale, scalars.Get(kScalarStatisticScale, kStatScaleType));
    builder.SetContext(Role::kUpdate, -1, s.state_name);
    HYPER_ASSIGN_OR_RETURN(
        const std::vector<ValueId> out,
        builder.TryAdd("running_update", {state, acc, scale}, {{"momentum", s.momentum}}));
    update.AddResult(out[0], s.state_name, argument);
  }
  return update;
}

}  // namespace hyper::ir
