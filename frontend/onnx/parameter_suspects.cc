// Tensors that are trained although something speaks against it (part of parameter_looks.h).
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/strings.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/importer.h"
#include "frontend/onnx/parameter_looks.h"
#include "frontend/onnx/parameter_tensors.h"
#include "frontend/onnx/tie_parameters.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::NodeProto;

struct Use {
  const NodeProto* node = nullptr;
  int slot = 0;
};

bool IsTrained(const ParameterDecision& d) {
  // Where PyTorch's record tells what a tensor is there is nothing to guess.
  return !d.constant && d.needed && d.kind == ir::ArgumentKind::kParameter && d.origin.empty() &&
         !d.reason.starts_with("trained by");
}

// Names computed from the inputs and tensors of the file without any matrix product or norm.
std::set<std::string> NormalisedInputs(const LoadedModel& model) {
  static const std::set<std::string> ops = {"Cast",    "Identity",  "Transpose", "Reshape",
                                            "Flatten", "Unsqueeze", "Squeeze",   "Sub",
                                            "Div",     "Mul"};
  std::set<std::string> raw;
  for (const onnx::ValueInfoProto* input : model.inputs) raw.insert(input->name());
  for (const NodeProto& node : model.graph().node()) {
    if (ops.count(node.op_type()) == 0 || node.output_size() == 0) continue;
    bool any = false;
    bool all = true;
    for (const std::string& name : node.input()) {
      any = any || raw.count(name) > 0;
      all = all && (raw.count(name) > 0 || model.FindTensor(name) != nullptr);
    }
    if (any && all) raw.insert(node.output(0));
  }
  return raw;
}

}  // namespace

void SuspectParameters(const LoadedModel& model, ParameterPlan* plan) {
  const std::set<std::string> raw = NormalisedInputs(model);
  std::map<std::string, std::vector<Use>> uses;
  for (const NodeProto& node : model.graph().node()) {
    for (int i = 0; i < node.input_size(); ++i) uses[plan->Reads(node, i)].push_back({&node, i});
  }
  std::vector<std::string> buffers;
  std::vector<std::string> shared;
  for (ParameterDecision& d : plan->tensors) {
    if (!IsTrained(d)) continue;
    d.suspicion = LooksLikeBuffer(d.name, d.value);
    std::map<std::pair<std::string, int>, int> readers;
    for (const Use& use : uses[d.name]) {
      const std::string& op = use.node->op_type();
      if ((op == "Sub" || op == "Div" || op == "Mul") &&
          raw.count(use.node->input(1 - use.slot)) > 0) {
        d.suspicion = "scales or shifts an input of the model";
      }
      const ImportTarget* target = ImportTargets().Find(NormalDomain(use.node->domain()), op);
      const bool weight =
          target != nullptr && std::find(target->weight_inputs.begin(), target->weight_inputs.end(),
                                         use.slot) != target->weight_inputs.end();
      if (weight || (op == "Add" && AllEqual(d.value))) ++readers[{op, use.slot}];
    }
    if (!d.suspicion.empty()) buffers.push_back(d.name);
    if (std::any_of(readers.begin(), readers.end(), [](const auto& r) { return r.second > 1; })) {
      shared.push_back(d.name);
    }
  }
  if (!buffers.empty()) {
    std::vector<std::string> patterns;
    for (const std::string& name : buffers) patterns.push_back(YamlScalar(name));
    plan->notes.push_back(fmt::format(
        "trained, but they look like buffers or constants: {}; to leave them as they are: "
        "model.parameters: {{freeze: [{}]}} (hyperc inspect tells why)",
        ShortList(buffers), Join(patterns, ", ")));
  }
  if (!shared.empty()) {
    plan->notes.push_back(fmt::format(
        "read by several nodes and trained as one parameter each: {}; if the exporter merged "
        "weights of equal value, this file no longer tells them apart",
        ShortList(shared)));
  }
  std::vector<const ParameterDecision*> trained;
  for (const ParameterDecision& d : plan->tensors) {
    if (IsTrained(d)) trained.push_back(&d);
  }
  if (std::optional<std::string> note = SuggestTies(trained)) {
    plan->notes.push_back(*std::move(note));
  }
}

}  // namespace hyper::onnx_frontend
