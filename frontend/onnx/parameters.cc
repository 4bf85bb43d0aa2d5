// What is a parameter, a state, a frozen weight or a plain constant (part of import.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/strings.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/gradient_flow.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/parameter_looks.h"
#include "frontend/onnx/parameter_names.h"
#include "frontend/onnx/parameter_tensors.h"
#include "frontend/onnx/parameter_uses.h"
#include "frontend/onnx/tie_parameters.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::NodeProto;

bool Contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

const ImportTarget* TargetOf(const NodeProto& node) {
  return ImportTargets().Find(NormalDomain(node.domain()), node.op_type());
}

class Planner {
 public:
  Planner(const LoadedModel& model, const ImportOptions& options, Diagnostics* diagnostics)
      : model_(model), options_(options), diagnostics_(diagnostics) {
    for (const auto& output : model.graph().output()) outputs_.insert(output.name());
    for (const NodeProto& node : model.graph().node()) {
      if (node.op_type() == "Reshape" && node.output_size() > 0) reshaped_.insert(node.output(0));
    }
  }

  ParameterPlan Run() {
    plan_ = CollectParameterTensors(model_, options_.restore_parameters);
    TieAgain();
    CollectUses();
    SplitStates();
    std::vector<std::string> roots(outputs_.begin(), outputs_.end());
    std::vector<std::string> losses;
    for (const LossSpec& loss : options_.losses) {
      losses.push_back(loss.prediction);
      losses.push_back(loss.target);
    }
    roots.insert(roots.end(), losses.begin(), losses.end());
    needed_ = Ancestors(model_, roots);
    losses_.insert(losses.begin(), losses.end());
    losses_.erase("");
    flow_ = GradientFlow(model_, losses_);
    for (ParameterDecision& d : plan_.tensors) Classify(&d);
    NameAliases(uses_, &plan_);
    ApplyRules();
    FreezeStates();
    if (options_.training) {
      SuspectParameters(model_, &plan_);
      WarnOfCuts();
    }
    for (ParameterDecision& d : plan_.tensors) {
      for (const TiedName& t : d.tied) {
        d.reason += fmt::format("; tied: {}{}", t.name, t.transposed ? " (transposed)" : "");
      }
    }
    return std::move(plan_);
  }

 private:
  void Add(ParameterDecision d) {
    plan_.index.emplace(d.name, static_cast<int>(plan_.tensors.size()));
    plan_.tensors.push_back(std::move(d));
  }
  ParameterDecision* Find(const std::string& name) {
    const auto it = plan_.index.find(name);
    return it == plan_.index.end() ? nullptr : &plan_.tensors[static_cast<size_t>(it->second)];
  }

  // Which names mean what, and what is a parameter, is decided for the file as it is.
  void TieAgain() {
    if (options_.ties.empty()) return;
    ImportOptions untied = options_;
    untied.ties.clear();
    untied.rules.clear();
    untied.training = false;  // no notes
    Diagnostics unused;
    const ParameterPlan listing = Planner(model_, untied, &unused).Run();
    TieParameters(options_.ties, listing, model_.path, diagnostics_, &plan_);
  }

  bool IsSplitIdentity(const NodeProto& node) {
    if (node.op_type() != "Identity" || node.output_size() != 1) return false;
    if (plan_.views.count(node.output(0)) > 0) return true;  // tied to another tensor
    const ParameterDecision* d = Find(node.output(0));
    return d != nullptr && d->places.front().place == TensorPlace::kIdentity;
  }

  void CollectUses() {
    for (const NodeProto& node : model_.graph().node()) {
      if (IsSplitIdentity(node)) continue;
      for (int i = 0;; ++i) {  // operands that the file lacks stand behind those it has
        const std::string name = plan_.Reads(node, i);
        if (name.empty() && i >= node.input_size()) break;
        uses_[name].push_back({&node, i});
      }
      std::vector<std::string> weights;
      SubgraphUses(
          node,
          [this](const std::string& name, const Use& use) {
            const auto view = plan_.views.find(name);
            uses_[view == plan_.views.end() ? name : view->second.parameter].push_back(use);
          },
          &weights);
      if (!weights.empty()) {
        plan_.notes.push_back(
            fmt::format("{}: not trained, since defined inside a subgraph of '{}' ({})",
                        ShortList(weights), NodeTitle(node), node.op_type()));
      }
    }
  }

  // An output of the graph or a tensor that a loss names.
  bool IsRoot(const ParameterDecision& d, const std::set<std::string>& roots) const {
    return roots.count(d.name) > 0 ||
           std::any_of(d.places.begin(), d.places.end(), [&](const TensorPlacement& p) {
             return p.place != TensorPlace::kOperand && roots.count(p.tensor) > 0;
           });
  }

  bool HasUseIn(const ParameterDecision& d, const std::map<std::string, bool>& names) {
    for (const Use& use : uses_[d.name]) {
      for (const std::string& o : use.outer().output()) {
        if (names.count(o) > 0) return true;
      }
    }
    return false;
  }

  static bool IsStateUse(const Use& use) {
    return !use.inner() && use.node->op_type() == "BatchNormalization" &&
           NormalDomain(use.node->domain()).empty() && (use.slot == 3 || use.slot == 4);
  }

  // A running statistic is changed by running, so no other operand may share it: exporters merge
  // equal initial values.
  void SplitStates() {
    NameSet names;
    for (const auto& [name, uses] : uses_) names.Add(name);
    const size_t count = plan_.tensors.size();
    for (size_t i = 0; i < count; ++i) {
      const std::string name = plan_.tensors[i].name;
      std::vector<Use>& uses = uses_[name];
      const bool pure = std::all_of(uses.begin(), uses.end(), IsStateUse);
      bool first = pure;
      std::vector<Use> kept;
      for (const Use& use : uses) {
        if (!IsStateUse(use) || first) {
          kept.push_back(use);
          first = false;
          continue;
        }
        ParameterDecision d = plan_.tensors[i];
        d.tied.clear();
        d.name = names.MakeUnique(fmt::format("{}@{}", name, NodeTitle(*use.node)));
        const OperandSlot slot{use.node->output(0), use.slot};
        d.places = {{TensorPlace::kOperand, d.name, {slot}, {{}, d.type.dims}}};
        plan_.operands[{slot.node_output, slot.slot}] = d.name;
        split_uses_[d.name] = {use};
        Add(std::move(d));
      }
      uses = std::move(kept);
    }
    for (auto& [name, uses] : split_uses_) uses_[name] = uses;
  }

  // True when a weight operand reads the tensor, directly or reshaped.
  bool FeedsWeight(const std::string& name, const ir::TensorType& type, int depth = 0) {
    if (depth > 8) return false;
    const auto wide = [](int64_t d) { return d > 1; };
    const bool vector = std::count_if(type.dims.begin(), type.dims.end(), wide) == 1;
    for (const Use& use : uses_[name]) {
      const ImportTarget* target = TargetOf(*use.node);
      if (target != nullptr && Contains(target->weight_inputs, use.slot)) return true;
      const std::string& op = use.node->op_type();
      if (vector && (op == "Add" || op == "Sub" || op == "Mul" || op == "Div")) return true;
      if (use.inner()) continue;
      if (PassesThrough(*use.node) && use.slot == 0 && use.node->output_size() > 0 &&
          FeedsWeight(use.node->output(0), type, depth + 1)) {
        return true;
      }
    }
    return false;
  }

  // PyTorch's TorchScript exporter keeps parameters as initializers: its Constant nodes are
  // literals.
  bool IsScriptLiteral(const ParameterDecision& d) const {
    return d.places.front().place == TensorPlace::kConstantNode && IsGeneratedName(d.source) &&
           model_.proto->producer_name() == "pytorch";
  }

  // Scale and bias of an InstanceNormalization that stands for a GroupNorm.
  bool IsNormHelper(const ParameterDecision& d) {
    if (!IsGeneratedName(d.source) || !AllEqual(d.value)) return false;
    const double value = d.value.ElementAsDouble(0);
    const std::vector<Use>& uses = uses_[d.name];
    return (value == 0 || value == 1) && std::all_of(uses.begin(), uses.end(), [&](const Use& u) {
             return !u.inner() && u.node->op_type() == "InstanceNormalization" && u.slot > 0 &&
                    reshaped_.count(u.node->input(0)) > 0;
           });
  }

  // Why a tensor is no weight although it takes part in the computation; empty when it may be one.
  std::string LooksConstant(const ParameterDecision& d) {
    if (d.literal) return "a number of the formula";
    const bool recorded = !d.origin.empty();
    if (recorded && !d.buffer) return {};
    if (!recorded) {
      if (IsScriptLiteral(d)) return "a literal of the program: a Constant node";
      if (IsNormHelper(d)) return "a number of the formula: a GroupNorm spelled out";
      if (FeedsWeight(d.name, d.type)) return {};
      const TensorPlace place = d.places.front().place;
      const bool invented = place == TensorPlace::kConstantNode || IsGeneratedName(d.source);
      if (invented && !(place == TensorPlace::kIdentity && !IsGeneratedName(d.name))) {
        return "a number of the formula: no weight operand reads it";
      }
    }
    // Names like "blocks.0.scale" come from a module; "t17" or "two" may be anything.
    if (d.type.elements() <= 1 && (recorded || d.name.find('.') == std::string::npos)) {
      return "a single number; a rule that names it trains it";
    }
    for (int64_t i = 0; i < d.type.elements(); ++i) {
      if (!(std::abs(d.value.ElementAsDouble(i)) < 1e30)) return "holds infinities: a mask";
    }
    return {};
  }

  void Classify(ParameterDecision* d) {
    const std::vector<Use>& uses = uses_[d->name];
    if (uses.empty() && !IsRoot(*d, outputs_)) {
      d->needed = false;
      d->constant = true;
      d->reason = "not used by any node";
      return;
    }
    d->needed = HasUseIn(*d, needed_) || IsRoot(*d, outputs_) || IsRoot(*d, losses_);
    for (const Use& use : uses) {
      const ImportTarget* target = TargetOf(*use.node);
      if (target != nullptr && Contains(target->constant_inputs, use.slot)) {
        d->constant = true;
        d->reason = fmt::format("operand {} of '{}' ({}) must be known at compile time", use.slot,
                                NodeTitle(*use.node), use.node->op_type());
        return;
      }
    }
    if (!uses.empty() && std::all_of(uses.begin(), uses.end(), IsStateUse)) {
      d->kind = ir::ArgumentKind::kState;
      d->reason = "running statistic";
      return;
    }
    const std::string looks = LooksConstant(*d);
    if (!looks.empty()) {
      d->constant = true;
      d->can_train = true;
      d->reason = looks;
      return;
    }
    Decide(d, {});
    if (d->buffer && d->kind == ir::ArgumentKind::kParameter) {
      d->kind = ir::ArgumentKind::kFrozen;
      d->reason = d->origin + "; a rule with exactly its name trains it";
    }
  }

  // Trained unless something stands in the way. `rule`: the glob that asks for it, or empty.
  void Decide(ParameterDecision* d, const std::string& rule) {
    d->kind = ir::ArgumentKind::kFrozen;
    d->cut_by.clear();
    if (!options_.training) {
      d->reason = "nothing is trained";
      return;
    }
    if (!flow_.ReachesLoss(uses_[d->name]) && !IsRoot(*d, losses_)) {
      d->reason = "does not reach the loss";
      return;
    }
    if (!IsRoot(*d, losses_)) d->cut_by = flow_.CutBy(uses_[d->name]);
    if (!d->cut_by.empty()) {
      d->reason = "cut off from the loss by " + d->cut_by;
      return;
    }
    d->kind = ir::ArgumentKind::kParameter;
    d->reason = !rule.empty()        ? fmt::format("trained by '{}'", rule)
                : !d->origin.empty() ? d->origin
                                     : "a float tensor that reaches the loss";
  }

  void ApplyRules() {
    std::vector<std::string> names;
    for (const ParameterDecision& d : plan_.tensors) {
      if (d.constant && !d.can_train) continue;
      const std::vector<std::string> own = KnownNames(d);
      names.insert(names.end(), own.begin(), own.end());
    }
    for (const ParameterRule& rule : options_.rules) {
      bool matched = false;
      bool changes = !rule.train || rule.glob == "*";
      std::vector<std::string> buffers;  // that the rule matches without effect
      std::vector<std::string> states;
      for (ParameterDecision& d : plan_.tensors) {
        if (d.constant && !d.can_train) continue;
        if (!MatchesName(rule.glob, d)) continue;
        if (d.constant && (!rule.train || rule.glob == "*")) {
          matched = matched || !rule.train;  // it stays as it is already
          continue;
        }
        matched = true;
        if (d.kind == ir::ArgumentKind::kState) {
          states.push_back(d.name);
          if (rule.train) {
            frozen_states_.erase(d.name);
          } else {
            frozen_states_.insert(d.name);
          }
          continue;
        }
        if (!rule.train) {
          d.kind = ir::ArgumentKind::kFrozen;
          d.cut_by.clear();
          if (options_.training) d.reason = fmt::format("frozen by '{}'", rule.glob);
        } else if (!d.buffer || rule.glob == d.name || rule.glob == d.alias) {
          d.constant = false;
          Decide(&d, rule.glob == "*" ? "" : rule.glob);
          changes = true;
        } else {
          buffers.push_back(d.name);
        }
      }
      if (matched && !changes) WarnOfNoEffect(rule.glob, buffers, states);
      if (!matched && rule.glob != "*") {
        diagnostics_->Error(
            rule.location.file.empty() ? SourceLocation{model_.path} : rule.location,
            fmt::format("the pattern '{}' matches none of the {} weights", rule.glob, names.size()),
            DidYouMean(rule.glob, names));
      }
    }
  }

  void WarnOfNoEffect(const std::string& glob, const std::vector<std::string>& buffers,
                      const std::vector<std::string>& states) {
    plan_.warnings.push_back(
        buffers.empty()
            ? fmt::format(
                  "the pattern '{}' trains nothing: it matches running statistics only ({})", glob,
                  ShortList(states))
            : fmt::format("the pattern '{}' trains nothing: it matches buffers only ({}), which a "
                          "rule trains when it gives exactly their name",
                          glob, ShortList(buffers)));
  }

  // A BatchNormalization in evaluation mode stays as it is when its scale and bias are both frozen,
  // or its statistics by name.
  void FreezeStates() {
    if (!options_.training) return;
    std::vector<ParameterDecision*> kept_states;
    for (ParameterDecision& d : plan_.tensors) {
      if (d.constant || d.kind != ir::ArgumentKind::kState) continue;
      const NodeProto& node = *uses_[d.name].front().node;
      const auto marked = [&] {
        for (const auto& a : node.attribute()) {
          if (a.name() == "training_mode") return a.i() != 0;
        }
        return node.output_size() > 1 && !node.output(1).empty();
      };
      auto frozen = [&](int slot) {
        const ParameterDecision* p = Find(plan_.Reads(node, slot));
        return p != nullptr && !p->constant && p->kind == ir::ArgumentKind::kFrozen;
      };
      auto kept = [&](int slot) { return frozen_states_.count(plan_.Reads(node, slot)) > 0; };
      if (!marked() && kept(3) && kept(4)) {
        kept_states.push_back(&d);
      } else if (!marked() && frozen(1) && frozen(2)) {
        d.kind = ir::ArgumentKind::kFrozen;
        d.reason = "running statistic of a frozen BatchNormalization";
      }
    }
    for (ParameterDecision* d : kept_states) {
      d->kind = ir::ArgumentKind::kFrozen;
      d->reason = "running statistic, frozen by a rule: used as it is";
    }
  }

  void WarnOfCuts() {
    std::vector<std::pair<std::string, std::vector<std::string>>> cuts;
    for (const ParameterDecision& d : plan_.tensors) {
      if (d.constant || !d.needed || d.cut_by.empty() || d.buffer) continue;
      auto it = std::find_if(cuts.begin(), cuts.end(),
                             [&](const auto& cut) { return cut.first == d.cut_by; });
      if (it == cuts.end()) it = cuts.insert(cuts.end(), {d.cut_by, {}});
      it->second.push_back(d.name);
    }
    for (const auto& [by, names] : cuts) {
      plan_.warnings.push_back(
          fmt::format("{}: not trained, since cut off from the loss by {}", ShortList(names), by));
    }
  }

  const LoadedModel& model_;
  const ImportOptions& options_;
  Diagnostics* diagnostics_;
  std::set<std::string> frozen_states_;  // named by the rules that decide about them
  ParameterPlan plan_;
  std::set<std::string> outputs_;
  UsesByName uses_;
  UsesByName split_uses_;
  std::map<std::string, bool> needed_;
  std::set<std::string> losses_;  // tensors that the losses name
  GradientFlow flow_;
  std::set<std::string> reshaped_;  // outputs of Reshape nodes
};

}  // namespace

std::string_view TensorPlaceName(TensorPlace place) {
  switch (place) {
    case TensorPlace::kInitializer: return "initializer";
    case TensorPlace::kConstantNode: return "constant";
    case TensorPlace::kIdentity: return "identity";
    case TensorPlace::kOperand: return "operand";
  }
  return "";
}

const ParameterDecision* ParameterPlan::Find(const std::string& name) const {
  const auto it = index.find(name);
  return it == index.end() ? nullptr : &tensors[static_cast<size_t>(it->second)];
}

std::string ParameterPlan::Reads(const onnx::NodeProto& node, int slot) const {
  std::string name = slot < node.input_size() ? node.input(slot) : std::string();
  if (node.output_size() > 0) {
    const auto it = operands.find({node.output(0), slot});
    if (it != operands.end()) name = it->second;
  }
  const auto view = views.find(name);
  return view == views.end() ? name : view->second.parameter;
}

std::map<std::string, bool> Ancestors(const LoadedModel& model,
                                      const std::vector<std::string>& names) {
  std::map<std::string, bool> found;
  for (const std::string& name : names) {
    if (!name.empty()) found[name] = true;
  }
  const auto& nodes = model.graph().node();
  for (int i = nodes.size() - 1; i >= 0; --i) {
    const NodeProto& node = nodes[i];
    const bool wanted = std::any_of(node.output().begin(), node.output().end(),
                                    [&](const std::string& o) { return found.count(o) > 0; });
    if (!wanted) continue;
    for (const std::string& o : node.output()) {
      if (!o.empty()) found[o] = true;
    }
    for (const std::string& name : NamesRead(node)) found[name] = true;
  }
  return found;
}

ParameterPlan PlanParameters(const LoadedModel& model, const ImportOptions& options,
                             Diagnostics* diagnostics) {
  return Planner(model, options, diagnostics).Run();
}

}  // namespace hyper::onnx_frontend
