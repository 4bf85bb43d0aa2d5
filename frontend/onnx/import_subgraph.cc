// Bodies of If, Loop and Scan, and parts of the graph computed anew (part of import_function.h).
#include <fmt/format.h>

#include <algorithm>

#include "frontend/onnx/import_function.h"
#include "ir/training.h"

namespace hyper::onnx_frontend {
namespace {

using ir::ValueId;
using onnx::GraphProto;
using onnx::NodeProto;

constexpr int kMaxSubgraphDepth = 16;

std::set<std::string> OwnNames(const GraphProto& graph) {
  std::set<std::string> names;
  for (const auto& input : graph.input()) names.insert(input.name());
  for (const auto& tensor : graph.initializer()) names.insert(tensor.name());
  for (const NodeProto& node : graph.node())
    names.insert(node.output().begin(), node.output().end());
  names.erase("");
  return names;
}

}  // namespace

FunctionImporter::InnerNames::InnerNames(FunctionImporter* importer, std::set<std::string> names)
    : importer_(importer), names_(std::move(names)) {
  for (const std::string& name : names_) {
    // Node handles keep the addresses of the tensors, which operands of outer nodes point at.
    if (auto handle = importer_->tensors_.extract(name); !handle.empty()) {
      outer_.push_back(std::move(handle));
    }
    if (importer_->failed_.erase(name) > 0) outer_failed_.insert(name);
    importer_->inner_names_.insert(name);
  }
}

FunctionImporter::InnerNames::~InnerNames() {
  for (const std::string& name : names_) {
    importer_->tensors_.erase(name);
    importer_->failed_.erase(name);
    importer_->inner_names_.erase(importer_->inner_names_.find(name));
  }
  for (auto& handle : outer_) importer_->tensors_.insert(std::move(handle));
  importer_->failed_.merge(outer_failed_);
}

std::vector<Tensor> FunctionImporter::ImportSubgraph(const NodeProto& node, const GraphProto& graph,
                                                     std::vector<Tensor> inputs, const Scope& scope,
                                                     const std::string& label) {
  if (scope.depth >= kMaxSubgraphDepth) Unsupported("subgraphs are nested too deeply");
  if (static_cast<int>(inputs.size()) != graph.input_size()) {
    Fail(
        fmt::format("the subgraph has {} inputs, {} are given", graph.input_size(), inputs.size()));
  }
  const InnerNames names(this, OwnNames(graph));
  for (const onnx::TensorProto& tensor : graph.initializer()) {
    const auto read = model_.inner_tensors.find(&tensor);
    // Bodies that ONNX gives are not part of the file.
    const ir::HostTensor value = read == model_.inner_tensors.end()
                                     ? OrFail(ReadTensor(tensor, nullptr, nullptr))
                                     : read->second;
    if (!value.defined()) {
      Refuse(RefusalOfElementType(tensor.data_type()),
             fmt::format("initializer '{}' of a subgraph", tensor.name()));
    }
    Bind(tensor.name(), {value.type(), {}, value, true});
  }
  for (int i = 0; i < graph.input_size(); ++i) {
    Bind(graph.input(i).name(), std::move(inputs[static_cast<size_t>(i)]));
  }
  Scope inner = scope;
  ++inner.depth;
  const int errors = diagnostics_->error_count();
  int number = 0;
  for (const NodeProto& step : graph.node()) {
    inner.opset = OpsetInside(step, scope.opset);
    inner.where = fmt::format("{}: node '{}' ({}) of {}", scope.where, NodeTitle(step),
                              step.op_type(), label);
    inner.source = fmt::format("{}/{}/{}#{}", scope.source, label, NodeTitle(step), number++);
    ImportNode(step, inner);
  }
  // Whatever comes behind the first failure would only repeat it.
  if (diagnostics_->error_count() > errors) throw ReportedError();
  builder_.SetContext(ir::Role::kForward, -1, scope.source);
  std::vector<Tensor> outputs;
  for (const auto& output : graph.output()) {
    const Tensor* found = Lookup(output.name());
    if (found == nullptr) {
      Fail(fmt::format("output '{}' of the subgraph of '{}' is not available", output.name(),
                       NodeTitle(node)));
    }
    outputs.push_back(*found);
  }
  return outputs;
}

std::vector<ValueId> FunctionImporter::Derivatives(const std::vector<std::string>& inputs,
                                                   std::vector<Tensor> values, int wanted,
                                                   const std::string& output, const Scope& scope) {
  if (scope.depth >= kMaxSubgraphDepth) Unsupported("gradients are nested too deeply");
  // The nodes between the inputs and the output.
  std::set<std::string> needed = {output};
  const std::set<std::string> cut(inputs.begin(), inputs.end());
  const auto& nodes = model_.graph().node();
  std::vector<int> path;
  std::set<std::string> own = cut;
  for (int i = nodes.size() - 1; i >= 0; --i) {
    const bool used =
        std::any_of(nodes[i].output().begin(), nodes[i].output().end(),
                    [&](const std::string& o) { return needed.count(o) > 0 && cut.count(o) == 0; });
    if (!used) continue;
    const std::vector<std::string> read = NamesRead(nodes[i]);
    needed.insert(read.begin(), read.end());
    // Constant nodes are bound already and stay so.
    if (model_.FindTensor(nodes[i].output(0)) != nullptr) continue;
    path.push_back(i);
    own.insert(nodes[i].output().begin(), nodes[i].output().end());
  }
  std::reverse(path.begin(), path.end());
  own.erase("");
  if (own.count(output) == 0) {
    Fail(fmt::format("'{}' is not computed by the nodes of the graph", output));
  }
  std::vector<ValueId> copies;
  for (Tensor& value : values) {
    // A value of its own: what else depends on the operand is no part of the function.
    copies.push_back(builder_.Add1("copy", {Materialise(builder_, value)}));
  }
  const InnerNames names(this, own);
  for (size_t i = 0; i < inputs.size(); ++i) {
    Bind(inputs[i], {builder_.type(copies[i]), copies[i], {}, false});
  }
  Scope inner = scope;
  ++inner.depth;
  const int errors = diagnostics_->error_count();
  for (int i : path) {
    inner.opset = model_.node_opset[static_cast<size_t>(i)];
    inner.where =
        fmt::format("{}: node '{}' ({})", scope.where, NodeTitle(nodes[i]), nodes[i].op_type());
    inner.source = fmt::format("{}/{}#{}", scope.source, NodeTitle(nodes[i]), i);
    ImportNode(nodes[i], inner);
  }
  if (diagnostics_->error_count() > errors) throw ReportedError();
  builder_.SetContext(ir::Role::kForward, -1, scope.source);
  Tensor* result = Lookup(output);
  if (result == nullptr) Fail(fmt::format("'{}' is not available", output));
  const ir::TensorType type = result->type;
  if (!ir::IsFloat(type.dtype)) {
    Fail(fmt::format("'{}' is {}; only float tensors have gradients", output, type.ToString()));
  }
  ir::Dims axes;
  for (int d = 0; d < type.rank(); ++d) axes.push_back(d);
  const ValueId sum = builder_.Reduce("sum", Materialise(builder_, *result), axes);
  const ValueId seed = builder_.ScalarConstant(type.dtype, 1);
  const std::vector<ValueId> by(copies.begin(), copies.begin() + wanted);
  const size_t before = function_->order().size();
  std::vector<ValueId> gradients =
      OrFail(ir::AppendGradients(*function_, {{sum, seed}}, by, nullptr));
  // They are part of what the model computes, like any other node.
  for (size_t k = before; k < function_->order().size(); ++k) {
    ir::Node& node = function_->node(function_->order()[k]);
    node.role = ir::Role::kForward;
    node.op_id = -1;
    node.source = scope.source;
  }
  builder_.SetContext(ir::Role::kForward, -1, scope.source);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const ir::TensorType of = builder_.type(by[i]);
    if (!gradients[i].valid()) gradients[i] = builder_.Splat(of.dtype, of.dims, 0);
  }
  return gradients;
}

}  // namespace hyper::onnx_frontend
