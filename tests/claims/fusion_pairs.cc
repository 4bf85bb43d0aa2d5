// Lists the neighbouring elementwise operations of a bundle's module that no single kernel
// computes, by walking the decomposed graph: fusion_figures.py compares the plan's `unfused` to it.
//
//   claims_fusion_pairs BUNDLE
//
// Prints JSON: subprogram -> {"pairs": how many neighbours, "unfused": ["a | b", ...]}, where a and
// b are named as in plan.json.
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <nlohmann/json.hpp>

#include "ir/op_def.h"
#include "ir/text.h"
#include "lower/decompose.h"
#include "lower/lowered.h"

namespace hyper {
namespace {

using lower::StepVariant;

bool IsView(std::string_view op) {
  return op == "broadcast" || op == "transpose" || op == "reshape" || op == "slice";
}

// The elementwise operation whose result v is, or is a view of.
ir::NodeId ElementwiseProducer(const ir::Function& f, ir::ValueId v) {
  ir::NodeId id = f.value(v).producer;
  while (id.valid() && IsView(f.node(id).op->name)) id = f.value(f.node(id).inputs[0]).producer;
  return id.valid() && f.node(id).op->name == "map" ? id : ir::NodeId{};
}

std::string Name(const ir::Node& node) {
  std::string text = node.attributes.GetExpr("expr").ToString();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return node.source.empty() ? text : text + " (" + node.source + ")";
}

nlohmann::json PairsOf(const ir::Function& f, const std::vector<int>& kernels) {
  int pairs = 0;
  nlohmann::json unfused = nlohmann::json::array();
  for (const ir::NodeId reader : f.order()) {
    if (f.node(reader).op->name != "map") continue;
    std::set<int> seen;
    for (const ir::ValueId v : f.node(reader).inputs) {
      const ir::NodeId producer = ElementwiseProducer(f, v);
      if (!producer.valid() || !seen.insert(producer.index).second) continue;
      ++pairs;
      const int a = kernels.at(static_cast<size_t>(producer.index));
      const int b = kernels.at(static_cast<size_t>(reader.index));
      if (a < 0 || a != b) unfused.push_back(Name(f.node(producer)) + " | " + Name(f.node(reader)));
    }
  }
  return {{"pairs", pairs}, {"unfused", unfused}};
}

Result<nlohmann::json> PairsOf(const std::string& bundle) {
  std::ifstream file(bundle + "/module.hir");
  std::stringstream text;
  text << file.rdbuf();
  HYPER_ASSIGN_OR_RETURN(const ir::Module module, ir::Parse(text.str(), "module.hir"));
  HYPER_ASSIGN_OR_RETURN(const lower::LoweredModule lowered, lower::Lower(module, {}));
  nlohmann::json all = nlohmann::json::object();
  for (const lower::LoweredFunction& function : lowered.functions) {
    const bool step = function.name.rfind("step_", 0) == 0;
    const StepVariant variant = function.name == "step_first"  ? StepVariant::kFirst
                                : function.name == "step_next" ? StepVariant::kNext
                                                               : StepVariant::kPlain;
    const ir::Function* source = module.Find(step ? "step" : function.name);
    if (source == nullptr) return Internal("no function for " + function.name);
    HYPER_ASSIGN_OR_RETURN(const ir::Function form, lower::Decompose(*source, variant, false));
    all[function.name] = PairsOf(form, function.node_kernels);
  }
  return all;
}

}  // namespace
}  // namespace hyper

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: claims_fusion_pairs BUNDLE\n");
    return 2;
  }
  const auto pairs = hyper::PairsOf(std::string(argv[1]));
  if (!pairs.ok()) {
    std::fprintf(stderr, "%s\n", pairs.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", pairs->dump(1).c_str());
  return 0;
}
