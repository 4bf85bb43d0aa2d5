// What is a parameter, a state, a frozen weight or a plain constant (part of import.h).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

#include "base/strings.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::NodeProto;

struct Use {
  const NodeProto* node = nullptr;
  int slot = 0;
};

bool Contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

bool AllDigits(std::string_view s) {
  return !s.empty() &&
         std::all_of(s.begin(), s.end(), [](unsigned char c) { return std::isdigit(c); });
}

// Names that exporters invent for folded values; a tensor called so may be a weight or a number of
// the formula, and only its use tells.
bool IsGeneratedName(const std::string& name) {
  if (AllDigits(name)) return true;
  if (name.starts_with("val_") && AllDigits(std::string_view(name).substr(4))) return true;
  for (std::string_view prefix : {"onnx::", "const_fold_opt__", "scalar_tensor", "_val_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name.find("Constant_") != std::string::npos && name.ends_with("_output_0");
}

const ImportTarget* TargetOf(const NodeProto& node) {
  return ImportTargets().Find(NormalDomain(node.domain()), node.op_type());
}

bool PassesThrough(const NodeProto& node) {
  static const std::set<std::string> ops = {"Identity", "Transpose", "Reshape",
                                            "Squeeze",  "Unsqueeze", "Flatten",
                                            "Cast",     "Expand",    "CastLike"};
  return ops.count(node.op_type()) > 0;
}

class Planner {
 public:
  Planner(const LoadedModel& model, const ImportOptions& options, Diagnostics* diagnostics)
      : model_(model), options_(options), diagnostics_(diagnostics) {
    for (const auto& output : model.graph().output()) outputs_.insert(output.name());
  }

  ParameterPlan Run() {
    CollectTensors();
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
    in_loss_ = Ancestors(model_, losses);
    for (ParameterDecision& d : plan_.tensors) Classify(&d);
    NameAliases();
    ApplyRules();
    FreezeStates();
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

  void CollectTensors() {
    for (const NamedTensor& t : model_.tensors) {
      if (!t.value.defined() || !ir::IsFloat(t.value.type().dtype)) continue;
      ParameterDecision d;
      d.name = d.source = t.name;
      d.type = t.value.type();
      d.value = t.value;
      d.place = t.origin == TensorOrigin::kInitializer ? TensorPlace::kInitializer
                                                       : TensorPlace::kConstantNode;
      Add(std::move(d));
    }
    if (!options_.unmerge_identities) return;
    for (const NodeProto& node : model_.graph().node()) {
      if (node.op_type() != "Identity" || !NormalDomain(node.domain()).empty()) continue;
      if (node.input_size() != 1 || node.output_size() != 1) continue;
      const ParameterDecision* source = Find(node.input(0));
      if (source == nullptr || outputs_.count(node.output(0)) > 0) continue;
      ParameterDecision d = *source;
      d.name = node.output(0);
      d.place = TensorPlace::kIdentity;
      unmerged_.insert(&node);
      Add(std::move(d));
    }
  }

  void CollectUses() {
    for (const NodeProto& node : model_.graph().node()) {
      if (unmerged_.count(&node) > 0) continue;
      for (int i = 0; i < node.input_size(); ++i) uses_[node.input(i)].push_back({&node, i});
      // Captured by branches: used in a way that only the branch knows.
      if (std::any_of(node.attribute().begin(), node.attribute().end(),
                      [](const auto& a) { return a.has_g() || a.graphs_size() > 0; })) {
        const std::vector<std::string> read = NamesRead(node);
        for (size_t k = static_cast<size_t>(node.input_size()); k < read.size(); ++k) {
          uses_[read[k]].push_back({&node, -1});
        }
      }
    }
  }

  static bool IsStateUse(const Use& use) {
    return use.node->op_type() == "BatchNormalization" &&
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
        d.name = names.MakeUnique(fmt::format("{}@{}", name, NodeTitle(*use.node)));
        d.place = TensorPlace::kOperand;
        d.node_output = use.node->output(0);
        d.slot = use.slot;
        plan_.operands[{d.node_output, d.slot}] = d.name;
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
      if (PassesThrough(*use.node) && use.slot == 0 && use.node->output_size() > 0 &&
          FeedsWeight(use.node->output(0), type, depth + 1)) {
        return true;
      }
    }
    return false;
  }

  // Why a tensor is no weight although it takes part in the computation; empty when it may be one.
  std::string LooksConstant(const ParameterDecision& d) {
    if (FeedsWeight(d.name, d.type)) return {};
    const bool invented = d.place == TensorPlace::kConstantNode || IsGeneratedName(d.source);
    if (invented && !(d.place == TensorPlace::kIdentity && !IsGeneratedName(d.name))) {
      return "a number of the formula: no weight operand reads it";
    }
    // Names like "blocks.0.scale" come from a module; "t17" or "two" may be anything.
    if (d.type.elements() <= 1 && d.name.find('.') == std::string::npos) {
      return "a single number; a rule that names it trains it";
    }
    for (int64_t i = 0; i < d.type.elements(); ++i) {
      if (!(std::abs(d.value.ElementAsDouble(i)) < 1e30)) return "holds infinities: a mask";
    }
    return {};
  }

  void Classify(ParameterDecision* d) {
    const std::vector<Use>& uses = uses_[d->name];
    const bool output = outputs_.count(d->name) > 0;
    if (uses.empty() && !output) {
      d->needed = false;
      d->constant = true;
      d->reason = "not used by any node";
      return;
    }
    // Tensors made up here are needed when the node that reads them is.
    d->needed =
        needed_.count(d->name) > 0 || std::any_of(uses.begin(), uses.end(), [&](const Use& u) {
          return u.node->output_size() > 0 && needed_.count(u.node->output(0)) > 0;
        });
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
    reaches_loss_[d->name] =
        in_loss_.count(d->name) > 0 || std::any_of(uses.begin(), uses.end(), [&](const Use& u) {
          return u.node->output_size() > 0 && in_loss_.count(u.node->output(0)) > 0;
        });
    const std::string looks = LooksConstant(*d);
    if (!looks.empty()) {
      d->constant = true;
      d->can_train = true;
      d->reason = looks;
      return;
    }
    Decide(d);
  }

  void Decide(ParameterDecision* d) {
    d->kind = ir::ArgumentKind::kFrozen;
    if (!options_.training) {
      d->reason = "nothing is trained";
    } else if (!reaches_loss_[d->name]) {
      d->reason = "does not reach the loss";
    } else {
      d->kind = ir::ArgumentKind::kParameter;
      d->reason = "trained";
    }
  }

  // "/layers.0/linear1/MatMul" -> "layers.0.linear1"
  static std::string ScopeOf(const std::string& node_name) {
    if (!node_name.starts_with("/")) return {};
    std::vector<std::string> parts;
    std::string part;
    for (char c : node_name.substr(1) + "/") {
      if (c != '/') {
        part += c;
        continue;
      }
      // Exporters repeat the parent: "layer1/layer1.0".
      if (!parts.empty() && part.starts_with(parts.back() + ".")) parts.pop_back();
      parts.push_back(part);
      part.clear();
    }
    parts.pop_back();
    return Join(parts, ".");
  }

  std::string AliasFrom(const std::string& name, int depth = 0) {
    for (const Use& use : uses_[name]) {
      const std::string& op = use.node->op_type();
      if (PassesThrough(*use.node) && depth < 4 && use.node->output_size() > 0) {
        const std::string alias = AliasFrom(use.node->output(0), depth + 1);
        if (!alias.empty()) return alias;
        continue;
      }
      const std::string scope = ScopeOf(use.node->name());
      if (scope.empty()) continue;
      const bool bias = op == "Add" || use.slot == 2;
      return scope + (bias ? ".bias" : ".weight");
    }
    return {};
  }

  void NameAliases() {
    std::map<std::string, int> count;
    for (const ParameterDecision& d : plan_.tensors) ++count[d.name];
    for (ParameterDecision& d : plan_.tensors) {
      if (d.constant || !(IsGeneratedName(d.name) || d.place == TensorPlace::kConstantNode))
        continue;
      d.alias = AliasFrom(d.name);
      if (!d.alias.empty()) ++count[d.alias];
    }
    for (ParameterDecision& d : plan_.tensors) {
      if (!d.alias.empty() && count[d.alias] > 1) d.alias.clear();
    }
  }

  void ApplyRules() {
    std::vector<std::string> names;
    for (const ParameterDecision& d : plan_.tensors) {
      if (d.constant && !d.can_train) continue;
      names.push_back(d.name);
      if (!d.alias.empty()) names.push_back(d.alias);
    }
    for (const ParameterRule& rule : options_.rules) {
      bool matched = false;
      for (ParameterDecision& d : plan_.tensors) {
        if (d.constant && !(d.can_train && rule.train && rule.glob != "*")) continue;
        const bool match =
            GlobMatch(rule.glob, d.name) || (!d.alias.empty() && GlobMatch(rule.glob, d.alias));
        matched = matched || match;
        if (!match || d.kind == ir::ArgumentKind::kState) continue;
        if (d.constant) {
          d.constant = false;
          Decide(&d);
        }
        if (d.reason == "nothing is trained" || d.reason == "does not reach the loss") continue;
        d.kind = rule.train ? ir::ArgumentKind::kParameter : ir::ArgumentKind::kFrozen;
        d.reason = fmt::format("{} by '{}'", rule.train ? "trained" : "frozen", rule.glob);
      }
      if (!matched && rule.glob != "*") {
        diagnostics_->Error(
            rule.location.file.empty() ? SourceLocation{model_.path} : rule.location,
            fmt::format("the pattern '{}' matches none of the {} weights", rule.glob, names.size()),
            DidYouMean(rule.glob, names));
      }
    }
  }

  // A BatchNormalization in evaluation mode whose scale and bias are both frozen stays as it is.
  void FreezeStates() {
    if (!options_.training) return;
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
        const ParameterDecision* p = slot < node.input_size() ? Find(node.input(slot)) : nullptr;
        return p != nullptr && !p->constant && p->kind == ir::ArgumentKind::kFrozen;
      };
      if (!marked() && frozen(1) && frozen(2)) {
        d.kind = ir::ArgumentKind::kFrozen;
        d.reason = "running statistic of a frozen BatchNormalization";
      }
    }
  }

  const LoadedModel& model_;
  const ImportOptions& options_;
  Diagnostics* diagnostics_;
  ParameterPlan plan_;
  std::set<std::string> outputs_;
  std::set<const NodeProto*> unmerged_;  // looked up only, never iterated
  std::map<std::string, std::vector<Use>> uses_;
  std::map<std::string, std::vector<Use>> split_uses_;
  std::map<std::string, bool> needed_;
  std::map<std::string, bool> in_loss_;
  std::map<std::string, bool> reaches_loss_;
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
