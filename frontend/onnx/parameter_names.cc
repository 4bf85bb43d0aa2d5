#include "frontend/onnx/parameter_names.h"

#include <algorithm>
#include <map>

#include "base/strings.h"
#include "frontend/onnx/parameter_looks.h"

namespace hyper::onnx_frontend {
namespace {

// "/layers.0/linear1/MatMul" -> "layers.0.linear1"
std::string ScopeOf(const std::string& node_name) {
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

std::string AliasFrom(const UsesByName& all, const std::string& name, int depth = 0) {
  const auto uses = all.find(name);
  if (uses == all.end()) return {};
  for (const Use& use : uses->second) {
    const std::string& op = use.node->op_type();
    if (use.inner()) continue;
    if (PassesThrough(*use.node) && depth < 4 && use.node->output_size() > 0) {
      std::string alias = AliasFrom(all, use.node->output(0), depth + 1);
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

}  // namespace

void NameAliases(const UsesByName& uses, ParameterPlan* plan) {
  std::map<std::string, int> count;
  for (const ParameterDecision& d : plan->tensors) ++count[d.name];
  for (ParameterDecision& d : plan->tensors) {
    const bool named =
        !IsGeneratedName(d.name) && d.places.front().place != TensorPlace::kConstantNode;
    if (d.constant || named || !d.alias.empty()) continue;
    d.alias = AliasFrom(uses, d.name);
    if (!d.alias.empty()) ++count[d.alias];
  }
  for (ParameterDecision& d : plan->tensors) {
    if (!d.alias.empty() && count[d.alias] > 1) d.alias.clear();
  }
}

std::vector<std::string> KnownNames(const ParameterDecision& d) {
  std::vector<std::string> names = {d.name, d.alias};
  for (const TiedName& t : d.tied) names.insert(names.end(), {t.name, t.alias});
  names.erase(std::remove(names.begin(), names.end(), ""), names.end());
  return names;
}

bool MatchesName(const std::string& glob, const ParameterDecision& d) {
  const std::vector<std::string> names = KnownNames(d);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return GlobMatch(glob, name); });
}

}  // namespace hyper::onnx_frontend
