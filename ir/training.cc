// Builds the functions of a training module from a forward model; see ir/training.h.
#include <algorithm>

#include "ir/training.h"
#include "ir/training_update.h"

namespace hyper::ir {
namespace {

// The node after `producer` in program order; invalid at the end or without a producer.
NodeId NodeAfter(const Function& function, NodeId producer) {
  const std::vector<NodeId>& order = function.order();
  const auto at = std::find(order.begin(), order.end(), producer);
  return at == order.end() || at + 1 == order.end() ? NodeId{} : *(at + 1);
}

// Adds one node right behind the one that computes `value`.
Result<ValueId> AddBehind(Function& function, std::string_view op, ValueId accumulator,
                          ValueId value, Attributes attributes, Role role) {
  Builder builder(&function);
  const NodeId producer = function.value(value).producer;
  if (producer.valid()) {
    function.SetInsertionPoint(NodeAfter(function, producer));
    builder.SetContext(role, function.node(producer).op_id, function.node(producer).source);
  } else {
    builder.SetContext(role, -1, {});
  }
  auto added = builder.TryAdd(op, {accumulator, value}, std::move(attributes));
  function.SetInsertionPoint({});
  if (!added.ok()) return added.status();
  return (*added)[0];
}

// Copies what computes `root` from data alone out of `from` into `to`.
Result<ValueId> CloneFromData(const Function& from, ValueId root, Function& to,
                              std::map<int32_t, ValueId>* done, const std::string& term) {
  std::vector<bool> wanted(static_cast<size_t>(from.value_count()), false);
  wanted[static_cast<size_t>(root.index)] = true;
  auto is_wanted = [&](ValueId v) { return wanted[static_cast<size_t>(v.index)]; };
  for (auto at = from.order().rbegin(); at != from.order().rend(); ++at) {
    const Node& node = from.node(*at);
    if (std::none_of(node.outputs.begin(), node.outputs.end(), is_wanted)) continue;
    for (ValueId in : node.inputs) wanted[static_cast<size_t>(in.index)] = true;
  }
  for (const Argument& a : from.arguments()) {
    if (!is_wanted(a.value) || done->count(a.value.index)) continue;
    if (a.kind != ArgumentKind::kInput) {
      return InvalidArgument("loss term '" + term + "': the labels depend on " +
                             std::string(ArgumentKindName(a.kind)) + " '" + a.name +
                             "', but which of them count must be known from the data alone");
    }
    (*done)[a.value.index] = to.AddArgument(from.type(a.value), a.kind, a.name);
  }
  for (NodeId id : from.order()) {
    const Node& node = from.node(id);
    if (std::none_of(node.outputs.begin(), node.outputs.end(), is_wanted)) continue;
    if (done->count(node.outputs[0].index)) continue;
    std::vector<ValueId> inputs;
    for (ValueId in : node.inputs) inputs.push_back(done->at(in.index));
    std::vector<TensorType> types;
    for (ValueId out : node.outputs) types.push_back(from.type(out));
    const NodeId copy = to.AddNode(node.op, inputs, node.attributes, types);
    to.node(copy).op_id = node.op_id;
    to.node(copy).source = node.source;
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const ValueId out = to.node(copy).outputs[i];
      to.value(out).name = from.value(node.outputs[i]).name;
      (*done)[node.outputs[i].index] = out;
    }
  }
  return done->at(root.index);
}

Result<Function> BuildCount(Function& step, const std::vector<LossTerm>& losses) {
  Function count("count");
  Builder builder(&count);
  std::map<int32_t, ValueId> cloned;
  std::vector<std::pair<ValueId, std::string>> results;
  for (const LossTerm& term : losses) {
    LossCount found;
    if (term.kind == LossKind::kCrossEntropy && term.ignore_index) {
      HYPER_ASSIGN_OR_RETURN(const ValueId target,
                             CloneFromData(step, term.target, count, &cloned, term.name));
      HYPER_ASSIGN_OR_RETURN(found, AppendLossCount(builder, term, target));
    } else {
      Builder shapes(&step);  // adds nothing: shapes decide
      HYPER_ASSIGN_OR_RETURN(found, AppendLossCount(shapes, term, term.target));
      found.value = builder.Constant(HostTensor::ScalarI64(found.constant));
    }
    results.emplace_back(found.value, "count." + term.name);
  }
  for (auto& [value, name] : results) count.AddResult(value, name);
  return count;
}

struct LossSums {
  std::vector<ValueId> values;
};

Result<LossSums> AppendLosses(Function& function, const std::vector<LossTerm>& losses) {
  Builder builder(&function);
  LossSums sums;
  for (const LossTerm& term : losses) {
    builder.SetContext(Role::kForward, -1, term.name);
    HYPER_ASSIGN_OR_RETURN(const ValueId sum, AppendLossSum(builder, term));
    sums.values.push_back(sum);
  }
  return sums;
}

// A parameter whose gradient stands complete in @step.
struct ReadyGradient {
  size_t position;  // of the node that completes it
  std::string name;
  ValueId gradient;
};

class StepBuilder {
 public:
  StepBuilder(ForwardModel& model, Diagnostics* diagnostics)
      : model_(model), step_(*model.module.Find("step")), diagnostics_(diagnostics) {}

  Status Run();
  // Parameters with a gradient, in the order in which the gradients become ready.
  const std::vector<std::string>& trained() const { return trained_; }

 private:
  Status AppendBackward(const std::vector<ValueId>& sums);
  Status AppendStatistics();
  Status AccumulateGradients();

  ForwardModel& model_;
  Function& step_;
  Diagnostics* diagnostics_;
  std::vector<ReadyGradient> ready_;
  std::vector<std::string> trained_;
};

Status StepBuilder::Run() {
  HYPER_ASSIGN_OR_RETURN(const LossSums sums, AppendLosses(step_, model_.step_losses));
  AssignOpIds(step_);
  HYPER_RETURN_IF_ERROR(AppendBackward(sums.values));
  step_.ClearResults();
  for (size_t i = 0; i < sums.values.size(); ++i) {
    step_.AddResult(sums.values[i], "loss." + model_.step_losses[i].name);
  }
  HYPER_RETURN_IF_ERROR(AccumulateGradients());
  return AppendStatistics();
}

Status StepBuilder::AppendBackward(const std::vector<ValueId>& sums) {
  std::vector<ValueId> wanted;
  std::vector<std::string> names;
  for (const Argument& a : step_.arguments()) {
    if (a.kind != ArgumentKind::kParameter) continue;
    wanted.push_back(a.value);
    names.push_back(a.name);
  }
  std::vector<std::pair<ValueId, ValueId>> loss_and_seed;
  for (size_t i = 0; i < sums.size(); ++i) {
    const ValueId seed =
        step_.AddArgument(step_.type(sums[i]), ArgumentKind::kScalar,
                          std::string(kScalarSeedPrefix) + model_.step_losses[i].name);
    loss_and_seed.emplace_back(sums[i], seed);
  }
  HYPER_ASSIGN_OR_RETURN(const std::vector<ValueId> gradients,
                         AppendGradients(step_, loss_and_seed, wanted, diagnostics_));
  std::vector<size_t> position(static_cast<size_t>(step_.node_count()), 0);
  for (size_t i = 0; i < step_.order().size(); ++i) {
    position[static_cast<size_t>(step_.order()[i].index)] = i;
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].valid()) continue;
    const NodeId producer = step_.value(gradients[i]).producer;
    const size_t at =
        producer.valid() ? position[static_cast<size_t>(producer.index)] : step_.order().size();
    ready_.push_back({at, names[i], gradients[i]});
  }
  std::stable_sort(ready_.begin(), ready_.end(),
                   [](const auto& a, const auto& b) { return a.position < b.position; });
  return Status::Ok();
}

Status StepBuilder::AccumulateGradients() {
  // The last first: each goes right behind its producer, in front of those already placed there
  // when one value is the gradient of several parameters.
  std::vector<std::pair<ValueId, int>> results(ready_.size());
  for (size_t i = 0; i < ready_.size(); ++i) {
    const ReadyGradient& r = ready_[i];
    results[i].first = step_.AddArgument(step_.type(r.gradient), ArgumentKind::kGradient, r.name);
    results[i].second = static_cast<int>(step_.arguments().size()) - 1;
  }
  for (size_t i = ready_.size(); i-- > 0;) {
    HYPER_ASSIGN_OR_RETURN(results[i].first,
                           AddBehind(step_, "accumulate", results[i].first, ready_[i].gradient, {},
                                     Role::kWeightGradient));
  }
  for (size_t i = 0; i < ready_.size(); ++i) {
    step_.AddResult(results[i].first, ready_[i].name, results[i].second);
    trained_.push_back(ready_[i].name);
  }
  return Status::Ok();
}

Status StepBuilder::AppendStatistics() {
  for (const RunningStatistic& s : model_.statistics) {
    const PersistentTensor* state = model_.module.FindTensor(s.state_name);
    HYPER_CHECK(state != nullptr, "running statistic '" + s.state_name + "' is no tensor");
    const ValueId accumulator =
        step_.AddArgument(state->type, ArgumentKind::kStatistic, s.state_name);
    const int argument = static_cast<int>(step_.arguments().size()) - 1;
    auto added = AddBehind(step_, "accumulate_stat", accumulator, s.batch_value,
                           {{"momentum", s.momentum}}, Role::kForward);
    if (!added.ok()) return added.status().WithContext("statistic '" + s.state_name + "'");
    step_.AddResult(*added, s.state_name, argument);
  }
  return Status::Ok();
}

// Parameters without a gradient become frozen everywhere.
void FreezeUnreached(Module& module, const std::vector<std::string>& trained,
                     std::vector<std::string>* unreached) {
  for (PersistentTensor& tensor : module.tensors) {
    if (tensor.kind != ArgumentKind::kParameter) continue;
    if (std::find(trained.begin(), trained.end(), tensor.name) != trained.end()) continue;
    tensor.kind = ArgumentKind::kFrozen;
    if (unreached != nullptr) unreached->push_back(tensor.name);
    for (Function& function : module.functions) {
      for (Argument& a : function.mutable_arguments()) {
        if (a.kind == ArgumentKind::kParameter && a.name == tensor.name) {
          a.kind = ArgumentKind::kFrozen;
        }
      }
    }
  }
}

Status FinishEval(Function& eval, const std::vector<LossTerm>& losses) {
  HYPER_ASSIGN_OR_RETURN(const LossSums sums, AppendLosses(eval, losses));
  AssignOpIds(eval);
  const std::vector<FunctionResult> outputs = eval.results();
  eval.ClearResults();
  for (size_t i = 0; i < losses.size(); ++i) {
    eval.AddResult(sums.values[i], "loss." + losses[i].name);
  }
  for (const FunctionResult& r : outputs) eval.AddResult(r.value, r.name, r.alias_argument);
  return Status::Ok();
}

}  // namespace

Result<Module> BuildTrainingModule(ForwardModel model, const OptimizerSpec& optimizer, bool,
                                   Diagnostics* diagnostics, std::vector<std::string>* unreached) {
  return Guard([&]() -> Result<Module> {
    Module& source = model.module;
    HYPER_CHECK(source.Find("step") != nullptr, "no function @step");
    HYPER_CHECK(source.Find("eval") != nullptr, "no function @eval");
    if (model.step_losses.empty()) return InvalidArgument("no loss term, expected at least one");
    HYPER_ASSIGN_OR_RETURN(Function count, BuildCount(*source.Find("step"), model.step_losses));
    StepBuilder step(model, diagnostics);
    HYPER_RETURN_IF_ERROR(step.Run());
    HYPER_RETURN_IF_ERROR(FinishEval(*source.Find("eval"), model.eval_losses));
    FreezeUnreached(source, step.trained(), unreached);
    if (step.trained().empty()) {
      return InvalidArgument("no parameter influences the loss: nothing to train");
    }
    const std::vector<ArgumentKind> droppable = {ArgumentKind::kState, ArgumentKind::kFrozen,
                                                 ArgumentKind::kRng};
    source.Find("step")->RemoveUnusedArguments(droppable);
    source.Find("eval")->RemoveUnusedArguments(droppable);

    Module result;
    result.name = source.name;
    result.tensors = source.tensors;
    result.functions.push_back(std::move(count));
    result.functions.push_back(std::move(*source.Find("step")));
    if (!model.statistics.empty()) {
      HYPER_ASSIGN_OR_RETURN(Function weight, BuildStatWeight(result, model.statistics));
      result.functions.push_back(std::move(weight));
    }
    HYPER_ASSIGN_OR_RETURN(Function norm, BuildGradNorm(result));
    result.functions.push_back(std::move(norm));
    HYPER_ASSIGN_OR_RETURN(Function update, BuildUpdate(result, optimizer, model.statistics));
    result.functions.push_back(std::move(update));
    result.functions.push_back(std::move(*source.Find("eval")));
    return result;
  });
}

}  // namespace hyper::ir
