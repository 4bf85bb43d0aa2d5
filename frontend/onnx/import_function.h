// Builds one function (@step or @eval) from the nodes of a model (part of import.h).
// Thread safety: none.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "frontend/onnx/functions.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/importer.h"

namespace hyper::onnx_frontend {

// Sources of nodes: their names, or the first output where a name is missing or repeated.
std::map<const onnx::NodeProto*, std::string> UniqueSources(const onnx::GraphProto& graph);

// Why a node cannot be imported without trying: unknown version, no importer and no function body.
Status Importable(const onnx::NodeProto& node, int opset);

class FunctionImporter {
 public:
  FunctionImporter(const LoadedModel& model, const ParameterPlan& plan, ImportMode mode,
                   ir::Function* function, Diagnostics* diagnostics);

  // Arguments: the inputs with the types given, then the persistent tensors.
  void AddArguments(const std::vector<std::pair<std::string, ir::TensorType>>& inputs);
  // An input whose value is given: a constant, no argument.
  void AddBound(const std::string& name, const ir::HostTensor& value);
  // Imports the nodes that `wanted` depends on; problems go to the diagnostics.
  void ImportNodes(const std::vector<std::string>& wanted);
  // The tensor of that name as a value; nullopt when it does not exist or could not be imported.
  std::optional<ir::ValueId> ValueOf(const std::string& name);
  const Tensor* Find(const std::string& name);
  ir::Builder& builder() { return builder_; }
  ImportEvents& events() { return events_; }
  // Inputs on whose data depends what nodes need to know at compile time.
  const std::set<std::string>& undecided() const { return undecided_; }
  // A new data argument, or the one of that name.
  Result<ir::ValueId> DataArgument(const std::string& name, const ir::TensorType& type);

 private:
  // Bindings of a subgraph's own names; what they meant outside comes back afterwards.
  class InnerNames {
   public:
    InnerNames(FunctionImporter* importer, std::set<std::string> names);
    ~InnerNames();
    InnerNames(const InnerNames&) = delete;
    InnerNames& operator=(const InnerNames&) = delete;

   private:
    FunctionImporter* importer_;
    std::set<std::string> names_;
    std::vector<std::map<std::string, Tensor>::node_type> outer_;
    std::set<std::string> outer_failed_;
  };
  struct Scope {  // what surrounds the node being imported
    int opset = 0;
    std::string source;
    std::string where;  // for messages
    int depth = 0;
  };
  void ImportNode(const onnx::NodeProto& node, const Scope& scope);
  void ImportWith(const ImportTarget& target, const onnx::NodeProto& node, int since,
                  std::vector<Tensor*> inputs, const Scope& scope);
  bool TryFold(const ImportTarget& target, const onnx::NodeProto& node, int since,
               const std::vector<Tensor*>& inputs, const Scope& scope);
  void ImportBody(const onnx::NodeProto& node, const std::vector<Tensor*>& inputs,
                  const Scope& scope);
  // Of NodeContext::Services (import_subgraph.cc).
  std::vector<Tensor> ImportSubgraph(const onnx::NodeProto& node, const onnx::GraphProto& graph,
                                     std::vector<Tensor> inputs, const Scope& scope,
                                     const std::string& label);
  std::vector<ir::ValueId> Derivatives(const std::vector<std::string>& inputs,
                                       std::vector<Tensor> values, int wanted,
                                       const std::string& output, const Scope& scope);
  void Bind(const std::string& name, Tensor tensor);
  // The tensor of that name, null when there is none (yet). Views of parameters are made here.
  Tensor* Lookup(const std::string& name);
  ir::TensorType Widened(ir::TensorType type) const;
  // Remembers the inputs that `needed` is computed from; how to give them values, or empty.
  std::string AskToBind(ir::ValueId needed);
  NodeContext::Services ServicesFor(const onnx::NodeProto& node, const Scope& scope);
  const ParameterDecision* PersistentOperand(const onnx::NodeProto& node, int slot) const;

  const LoadedModel& model_;
  const ParameterPlan& plan_;
  ImportMode mode_;
  ir::Function* function_;
  Diagnostics* diagnostics_;
  ir::Builder builder_;
  ImportEvents events_;
  std::map<std::string, Tensor> tensors_;
  std::set<std::string> undecided_;
  std::set<std::string> failed_;            // outputs of nodes that could not be imported
  std::multiset<std::string> inner_names_;  // of the subgraphs being imported
  int64_t unrolled_nodes_ = 0;
  NameSet names_;
  ir::ValueId rng_;
};

}  // namespace hyper::onnx_frontend
