// Replaces calls of functions (of the model, or the body that ONNX gives for an op) by their nodes.
// Thread safety: pure functions.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "base/status.h"
#include "onnx/onnx_pb.h"

namespace hyper::onnx_frontend {

// "" and "ai.onnx" name the same domain.
std::string NormalDomain(const std::string& domain);

// The version of `domain` in a list of imports, 0 when it is not imported.
int ImportedVersion(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports,
                    const std::string& domain);

// The version of the default domain that holds for a node inside a subgraph whose owner has
// `outer`: functions called there may import their own.
int OpsetInside(const onnx::NodeProto& node, int outer);

// Names that are taken in a model; makes new ones.
class NameSet {
 public:
  void Add(const std::string& name) { names_.insert(name); }
  bool Has(const std::string& name) const { return names_.count(name) > 0; }
  // `wanted`, or `wanted` with the first free suffix _1, _2, ...; the result is taken afterwards.
  std::string MakeUnique(const std::string& wanted);

 private:
  std::set<std::string> names_;
  std::map<std::string, int> next_;  // suffix to try first
};

// Nodes of `function` called by `call`: attributes substituted, inner names made unique in `names`
// under the call's name as scope, formal names replaced by the call's operands.
std::vector<onnx::NodeProto> ExpandCall(const onnx::FunctionProto& function,
                                        const onnx::NodeProto& call, NameSet* names);

// A node with the version of the default domain that holds for it.
struct VersionedNode {
  onnx::NodeProto node;
  int opset = 0;
};

// Inlines every model-local function, nested calls and calls inside branches included, and removes
// the definitions. `versions` receives one entry per node of the main graph. Recursion, duplicate
// definitions and explosive nesting are errors.
void InlineLocalFunctions(onnx::ModelProto* model, std::vector<int>* versions,
                          const std::string& file, Diagnostics* diagnostics);

}  // namespace hyper::onnx_frontend
