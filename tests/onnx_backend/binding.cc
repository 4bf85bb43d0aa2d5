#include "tests/onnx_backend/binding.h"

#include "frontend/onnx/importer.h"

namespace hyper::onnx_backend {
namespace {

// Inputs of the graph that some node must know, as its importer declares.
std::set<std::string> DeclaredConstants(const onnx::GraphProto& graph) {
  std::set<std::string> names;
  for (const onnx::NodeProto& node : graph.node()) {
    const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
    const auto* target = onnx_frontend::ImportTargets().Find(domain, node.op_type());
    if (target == nullptr) continue;
    for (const int slot : target->constant_inputs) {
      if (slot < node.input_size()) names.insert(node.input(slot));
    }
  }
  return names;
}

std::set<std::string> ToBind(const NodeCase& node_case, const std::set<std::string>& asked,
                             const std::set<std::string>& bound) {
  const std::set<std::string> declared = DeclaredConstants(node_case.model.graph());
  std::set<std::string> more;
  for (const std::string& name : asked) {
    const auto input = node_case.inputs.find(name);
    if (input == node_case.inputs.end() || bound.contains(name)) continue;
    const auto dtype = onnx_frontend::DTypeFromOnnx(input->second.data_type());
    if (!dtype.has_value()) continue;
    if (!ir::IsFloat(*dtype) || declared.contains(name)) more.insert(name);
  }
  return more;
}

}  // namespace

std::string FirstError(const Diagnostics& diagnostics, const Status& status) {
  for (const Diagnostic& d : diagnostics.items()) {
    if (d.severity == Severity::kError) return d.message;
  }
  return status.message();
}

Result<onnx_frontend::ImportedModel> ImportBinding(
    const NodeCase& node_case, const onnx_frontend::LoadedModel& model,
    const std::function<Result<onnx_frontend::ImportOptions>(const std::set<std::string>& bound)>&
        options_with,
    std::set<std::string>* bound, std::string* message) {
  bound->clear();
  for (;;) {
    const auto options = options_with(*bound);
    if (!options.ok()) {
      *message = options.status().message();
      return options.status();
    }
    Diagnostics diagnostics;
    std::set<std::string> undecided;
    auto imported = onnx_frontend::Import(model, *options, &diagnostics, &undecided);
    if (imported.ok()) return imported;
    const std::set<std::string> more = ToBind(node_case, undecided, *bound);
    if (more.empty()) {
      *message = FirstError(diagnostics, imported.status());
      return imported.status();
    }
    bound->insert(more.begin(), more.end());
  }
}

}  // namespace hyper::onnx_backend
