// Reverse-mode differentiation of one function: finds the nodes between wanted values and losses,
// then walks them backwards and lets each op's record add its backward nodes.
#include <algorithm>
#include <tuple>
#include <utility>

#include "ir/autodiff_sum.h"
#include "ir/training.h"

namespace hyper::ir {
namespace {

struct Contribution {
  int position;  // of the consumer in the forward order
  int operand;
  ValueId value;
};

class Autodiff {
 public:
  Autodiff(Function& function, std::span<const ValueId> wanted)
      : function_(function),
        wanted_(wanted.begin(), wanted.end()),
        order_(function.order()),
        depends_(Size(), false),
        from_parameters_(Size(), false),
        needed_(Size(), false),
        first_use_(Size(), -1),
        contributions_(Size()),
        gradients_(Size()),
        builder_(&function) {}

  Status Run(const std::vector<std::pair<ValueId, ValueId>>& loss_and_seed,
             Diagnostics* diagnostics);
  ValueId GradientOf(ValueId v) const { return gradients_[Index(v)]; }

 private:
  size_t Size() const { return static_cast<size_t>(function_.value_count()); }
  static size_t Index(ValueId v) { return static_cast<size_t>(v.index); }
  bool IsFloatValue(ValueId v) const { return IsFloat(function_.type(v).dtype); }

  void MarkDependent();
  void MarkFromParameters();
  void MarkNeeded(const std::vector<std::pair<ValueId, ValueId>>& loss_and_seed);
  bool OnTheWay(const Node& node) const;
  Status ReportObstacles(Diagnostics* diagnostics) const;
  Status NodeBackward(int position, const Node& node);
  Status CallRule(const Node& node, const GradientFunction& rule,
                  const std::vector<ValueId>& output_grads, const std::vector<bool>& wanted,
                  Role role, std::vector<ValueId>* grads);
  void Complete(ValueId v, const Node* consumer);

  Function& function_;
  std::vector<ValueId> wanted_;
  std::vector<NodeId> order_;          // forward nodes
  std::vector<bool> depends_;          // per value: influenced by a wanted value
  std::vector<bool> from_parameters_;  // per value: computed from parameters and constants only
  std::vector<bool> needed_;           // per value: dependent and influences a loss
  std::vector<int> first_use_;         // per value: first consumer on the way
  std::vector<std::vector<Contribution>> contributions_;
  std::vector<ValueId> gradients_;
  Builder builder_;
};

// Reasons why the gradient cannot pass from `node` to its input i; nullopt: it can (or is zero).
std::optional<std::string> Obstacle(const Node& node, const std::vector<bool>& depends_on_input) {
  if (const auto* refused = std::get_if<NotDifferentiable>(&node.op->gradient)) {
    return std::string(refused->reason);
  }
  if (node.op->name != "map") return std::nullopt;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!depends_on_input[i]) continue;
    const auto d = Differentiate(node.attributes.GetExpr("expr"), static_cast<int>(i), -1);
    if (!d.ok()) return d.status().message();
  }
  return std::nullopt;
}

// True when the derivative of `node` in input i is known to be zero everywhere.
bool StopsGradient(const Node& node, size_t i) {
  if (std::holds_alternative<ZeroGradient>(node.op->gradient)) return true;
  if (node.op->name != "map") return false;
  const auto d = Differentiate(node.attributes.GetExpr("expr"), static_cast<int>(i), -1);
  return d.ok() && !d->has_value();
}

void Autodiff::MarkDependent() {
  for (ValueId v : wanted_) depends_[Index(v)] = true;
  for (NodeId id : order_) {
    const Node& node = function_.node(id);
    bool reached = false;
    for (size_t i = 0; i < node.inputs.size() && !reached; ++i) {
      reached = depends_[Index(node.inputs[i])] && !StopsGradient(node, i);
    }
    if (!reached) continue;
    for (ValueId out : node.outputs) {
      if (IsFloatValue(out)) depends_[Index(out)] = true;
    }
  }
}

void Autodiff::MarkFromParameters() {
  for (const Argument& a : function_.arguments()) {
    from_parameters_[Index(a.value)] = a.kind == ArgumentKind::kParameter;
  }
  std::vector<bool> constant(Size(), false);
  for (NodeId id : order_) {
    const Node& node = function_.node(id);
    bool all = true;
    bool any = false;
    for (ValueId in : node.inputs) {
      any = any || from_parameters_[Index(in)];
      all = all && (from_parameters_[Index(in)] || constant[Index(in)]);
    }
    for (ValueId out : node.outputs) {
      from_parameters_[Index(out)] = all && any;
      constant[Index(out)] = all && !any;
    }
  }
}

void Autodiff::MarkNeeded(const std::vector<std::pair<ValueId, ValueId>>& loss_and_seed) {
  for (const auto& [loss, seed] : loss_and_seed) {
    if (depends_[Index(loss)]) needed_[Index(loss)] = true;
  }
  for (int position = static_cast<int>(order_.size()) - 1; position >= 0; --position) {
    const Node& node = function_.node(order_[static_cast<size_t>(position)]);
    const bool reaches = std::any_of(node.outputs.begin(), node.outputs.end(),
                                     [&](ValueId v) { return needed_[Index(v)]; });
    if (!reaches) continue;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId in = node.inputs[i];
      if (!depends_[Index(in)] || StopsGradient(node, i)) continue;
      needed_[Index(in)] = true;
      first_use_[Index(in)] = position;
    }
  }
}

bool Autodiff::OnTheWay(const Node& node) const {
  auto needed = [&](ValueId v) { return needed_[Index(v)]; };
  return std::any_of(node.outputs.begin(), node.outputs.end(), needed) &&
         std::any_of(node.inputs.begin(), node.inputs.end(), needed);
}

Status Autodiff::ReportObstacles(Diagnostics* diagnostics) const {
  std::vector<std::string> lines;
  for (NodeId id : order_) {
    const Node& node = function_.node(id);
    if (!OnTheWay(node)) continue;
    std::vector<bool> dependent;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      dependent.push_back(needed_[Index(node.inputs[i])] && !StopsGradient(node, i));
    }
    const std::optional<std::string> reason = Obstacle(node, dependent);
    if (!reason) continue;
    const std::string where =
        node.source.empty() ? "function @" + function_.name() : "node '" + node.source + "'";
    const std::string message = "op '" + std::string(node.op->name) +
                                "' lies between a trained parameter and the loss "
                                "but cannot be differentiated: " +
                                *reason;
    lines.push_back(where + ": " + message);
    if (diagnostics != nullptr) {
      diagnostics->Error({where}, message,
                         "freeze the parameters in front of it or replace the node");
    }
  }
  if (lines.empty()) return Status::Ok();
  std::string all;
  for (const std::string& line : lines) all += (all.empty() ? "" : "\n") + line;
  return InvalidArgument(all);
}

Status Autodiff::CallRule(const Node& node, const GradientFunction& rule,
                          const std::vector<ValueId>& output_grads, const std::vector<bool>& wanted,
                          Role role, std::vector<ValueId>* grads) {
  if (std::none_of(wanted.begin(), wanted.end(), [](bool w) { return w; })) return Status::Ok();
  builder_.SetContext(role, node.op_id, node.source);
  return Guard([&] {
           return rule({builder_, node, output_grads, wanted, *grads});
         })
      .WithContext("gradient of op '" + std::string(node.op->name) + "'");
}

// Gradients of inputs made of parameters and those of all others come from separate calls, so that
// schedules can move the former; only norms compute both in one node.
Status Autodiff::NodeBackward(int position, const Node& node) {
  std::vector<ValueId> output_grads;
  for (ValueId out : node.outputs) output_grads.push_back(gradients_[Index(out)]);
  std::vector<bool> inputs(node.inputs.size());
  std::vector<bool> weights(node.inputs.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId in = node.inputs[i];
    if (!needed_[Index(in)] || StopsGradient(node, i)) continue;
    (from_parameters_[Index(in)] ? weights : inputs)[i] = true;
  }
  std::vector<ValueId> grads(node.inputs.size());
  const auto* rule = std::get_if<GradientFunction>(&node.op->gradient);
  HYPER_CHECK(rule != nullptr, "op '" + std::string(node.op->name) + "' has no gradient rule");
  const bool together = node.op->family == "normalization" &&
                        std::any_of(inputs.begin(), inputs.end(), [](bool w) { return w; });
  if (together) {
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = inputs[i] || weights[i];
    weights.assign(weights.size(), false);
  }
  HYPER_RETURN_IF_ERROR(CallRule(node, *rule, output_grads, inputs, Role::kInputGradient, &grads));
  HYPER_RETURN_IF_ERROR(
      CallRule(node, *rule, output_grads, weights, Role::kWeightGradient, &grads));
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!inputs[i] && !weights[i]) continue;
    const ValueId in = node.inputs[i];
    if (!grads[i].valid()) continue;
    HYPER_CHECK(function_.type(grads[i]) == function_.type(in),
                "gradient of op '" + std::string(node.op->name) + "' in input " +
                    std::to_string(i) + " is " + function_.type(grads[i]).ToString() +
                    ", expected " + function_.type(in).ToString());
    contributions_[Index(in)].push_back({position, static_cast<int>(i), grads[i]});
  }
  return Status::Ok();
}

// Sums what consumers contributed, in their program order.
void Autodiff::Complete(ValueId v, const Node* consumer) {
  std::vector<Contribution>& parts = contributions_[Index(v)];
  std::stable_sort(parts.begin(), parts.end(), [](const Contribution& a, const Contribution& b) {
    return std::pair(a.position, a.operand) < std::pair(b.position, b.operand);
  });
  if (consumer != nullptr) {
    builder_.SetContext(from_parameters_[Index(v)] ? Role::kWeightGradient : Role::kInputGradient,
                        consumer->op_id, consumer->source);
  }
  if (parts.empty()) return;
  std::vector<ValueId> values;
  for (const Contribution& part : parts) values.push_back(part.value);
  gradients_[Index(v)] = SumContributions(builder_, std::move(values));
}

Status Autodiff::Run(const std::vector<std::pair<ValueId, ValueId>>& loss_and_seed,
                     Diagnostics* diagnostics) {
  for (const auto& [loss, seed] : loss_and_seed) {
    const TensorType& type = function_.type(loss);
    if (type.rank() != 0 || !IsFloat(type.dtype)) {
      return InvalidArgument("the loss is " + type.ToString() + ", expected a float scalar");
    }
    if (function_.type(seed) != type) {
      return InvalidArgument("the seed is " + function_.type(seed).ToString() + ", expected " +
                             type.ToString());
    }
  }
  for (ValueId v : wanted_) {
    if (IsFloatValue(v)) continue;
    return InvalidArgument("'" + function_.value(v).name + "' is " + function_.type(v).ToString() +
                           "; only float tensors have gradients");
  }
  MarkDependent();
  MarkFromParameters();
  MarkNeeded(loss_and_seed);
  HYPER_RETURN_IF_ERROR(ReportObstacles(diagnostics));
  // A seed counts as a consumer behind all nodes.
  const int end = static_cast<int>(order_.size());
  for (size_t i = 0; i < loss_and_seed.size(); ++i) {
    const auto& [loss, seed] = loss_and_seed[i];
    if (!needed_[Index(loss)]) continue;
    contributions_[Index(loss)].push_back({end, static_cast<int>(i), seed});
    if (first_use_[Index(loss)] < 0) Complete(loss, nullptr);
  }
  for (int position = end - 1; position >= 0; --position) {
    const Node node = function_.node(order_[static_cast<size_t>(position)]);  // a copy: nodes move
    if (!OnTheWay(node)) continue;
    const bool any = std::any_of(node.outputs.begin(), node.outputs.end(),
                                 [&](ValueId v) { return gradients_[Index(v)].valid(); });
    if (any) HYPER_RETURN_IF_ERROR(NodeBackward(position, node));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId in = node.inputs[i];
      const bool repeated =
          std::find(node.inputs.begin(), node.inputs.begin() + static_cast<long>(i), in) !=
          node.inputs.begin() + static_cast<long>(i);
      if (!repeated && needed_[Index(in)] && first_use_[Index(in)] == position) {
        Complete(in, &node);
      }
    }
  }
  return Status::Ok();
}

}  // namespace

void AssignOpIds(Function& function) {
  int64_t next = 0;
  for (NodeId id : function.order()) next = std::max(next, function.node(id).op_id + 1);
  for (NodeId id : function.order()) {
    Node& node = function.node(id);
    if (node.op_id < 0) node.op_id = next++;
  }
}

void AssignOpIds(Module& module) {
  // (source node, op, which of its kind) -> number, shared by all functions.
  std::map<std::tuple<std::string, std::string, int>, int64_t> numbers;
  int64_t next = 0;
  for (Function& function : module.functions) {
    std::map<std::pair<std::string, std::string>, int> seen;
    for (NodeId id : function.order()) {
      Node& node = function.node(id);
      const std::string op(node.op->name);
      // Nodes without a source have nothing in common with those of another function.
      const std::string source = node.source.empty() ? "@" + function.name() : "#" + node.source;
      const auto [at, fresh] = numbers.try_emplace({source, op, seen[{source, op}]++}, next);
      if (fresh) ++next;
      node.op_id = at->second;
    }
  }
}

Result<std::vector<ValueId>> AppendGradients(
    Function& function, const std::vector<std::pair<ValueId, ValueId>>& loss_and_seed,
    std::span<const ValueId> wanted, Diagnostics* diagnostics) {
  Autodiff autodiff(function, wanted);
  const Status status = Guard([&] { return autodiff.Run(loss_and_seed, diagnostics); });
  if (!status.ok()) return status;
  std::vector<ValueId> gradients;
  for (ValueId v : wanted) gradients.push_back(autodiff.GradientOf(v));
  return gradients;
}

}  // namespace hyper::ir
