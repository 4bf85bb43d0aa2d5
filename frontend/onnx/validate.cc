// What a well-formed model must satisfy (part of load.h).
#include <fmt/format.h>

#include <map>
#include <set>

#include "base/strings.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/load.h"
#include "onnx/defs/schema.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::GraphProto;
using onnx::NodeProto;

bool IsUtf8(const std::string& s) {
  size_t i = 0;
  while (i < s.size()) {
    const auto c = static_cast<unsigned char>(s[i]);
    const int extra = c < 0x80                ? 0
                      : c >= 0xc2 && c < 0xe0 ? 1
                      : c >= 0xe0 && c < 0xf0 ? 2
                      : c >= 0xf0 && c < 0xf5 ? 3
                                              : -1;
    if (extra < 0 || i + static_cast<size_t>(extra) >= s.size()) return false;
    for (int k = 1; k <= extra; ++k) {
      if ((static_cast<unsigned char>(s[i + static_cast<size_t>(k)]) & 0xc0) != 0x80) return false;
    }
    i += static_cast<size_t>(extra) + 1;
  }
  return true;
}

class GraphChecker {
 public:
  GraphChecker(const onnx::ModelProto& model, const std::string& path, ExternalData* external,
               Diagnostics* diagnostics)
      : model_(model), path_(path), external_(external), diagnostics_(diagnostics) {}

  // `outer`: names visible from the enclosing graphs.
  void Check(const GraphProto& graph, const std::set<std::string>& outer, bool main) {
    std::map<std::string, std::string> defined;  // name -> what defines it
    auto define = [&](const std::string& name, const std::string& what) {
      if (!IsUtf8(name)) Error(fmt::format("{} has a name that is not UTF-8", what));
      const auto [it, inserted] = defined.emplace(name, what);
      if (!inserted)
        Error(fmt::format("tensor '{}' is defined twice: {} and {}", name, it->second, what));
    };
    std::set<std::string> inputs;
    for (const auto& input : graph.input()) {
      if (input.name().empty()) Error("a graph input has no name");
      define(input.name(), "a graph input");
      inputs.insert(input.name());
      CheckType(input, "input");
    }
    std::set<std::string> initializers;
    for (const onnx::TensorProto& tensor : graph.initializer()) {
      if (tensor.name().empty()) Error("an initializer has no name");
      if (!initializers.insert(tensor.name()).second) {
        Error(fmt::format("two initializers are named '{}'", tensor.name()));
      } else if (inputs.count(tensor.name()) == 0) {
        define(tensor.name(), "an initializer");
        if (main && model_.ir_version() < 4) {
          Error(fmt::format("initializer '{}' is not a graph input, which IR version {} asks for",
                            tensor.name(), model_.ir_version()));
        }
      } else {
        CheckDeclared(graph, tensor);
      }
      if (Status s = CheckTensor(tensor, external_); !s.ok()) {
        Error(fmt::format("initializer '{}': {}", tensor.name(), s.message()));
      }
    }
    if (graph.sparse_initializer_size() > 0) Error("sparse initializers are not supported");
    for (const NodeProto& node : graph.node()) {
      for (const std::string& output : node.output()) {
        if (!output.empty())
          define(output, fmt::format("node '{}' ({})", NodeTitle(node), node.op_type()));
      }
    }
    std::set<std::string> visible = outer;
    for (const auto& [name, what] : defined) visible.insert(name);
    for (const NodeProto& node : graph.node()) CheckNode(node, visible);
    std::set<std::string> outputs;
    for (const auto& output : graph.output()) {
      if (!outputs.insert(output.name()).second) {
        Error(fmt::format("two graph outputs are named '{}'", output.name()));
      }
      if (visible.count(output.name()) == 0) {
        Error(fmt::format("graph output '{}' is produced by no node", output.name()));
      }
      CheckType(output, "output");
    }
  }

 private:
  void Error(std::string message) { diagnostics_->Error({path_}, std::move(message)); }

  void CheckType(const onnx::ValueInfoProto& value, std::string_view role) {
    if (!value.type().has_tensor_type()) return;
    for (const auto& dim : value.type().tensor_type().shape().dim()) {
      if (dim.has_dim_value() && dim.dim_value() < 0) {
        Error(fmt::format("graph {} '{}' has extent {}", role, value.name(), dim.dim_value()));
      }
    }
  }

  void CheckDeclared(const GraphProto& graph, const onnx::TensorProto& tensor) {
    for (const auto& input : graph.input()) {
      if (input.name() != tensor.name() || !input.type().has_tensor_type()) continue;
      const auto& type = input.type().tensor_type();
      bool same = type.elem_type() == tensor.data_type();
      if (type.has_shape()) {
        same = same && type.shape().dim_size() == tensor.dims_size();
        for (int i = 0; same && i < tensor.dims_size(); ++i) {
          const auto& dim = type.shape().dim(i);
          same = !dim.has_dim_value() || dim.dim_value() == tensor.dims(i);
        }
      }
      if (!same) {
        Error(
            fmt::format("initializer '{}' does not have the type declared for the input of the "
                        "same name",
                        tensor.name()));
      }
    }
  }

  void CheckNode(const NodeProto& node, const std::set<std::string>& visible) {
    const std::string where = NodeLocation(path_, node);
    if (!IsUtf8(node.name())) diagnostics_->Error({path_}, "a node's name is not UTF-8");
    for (const std::string& input : node.input()) {
      if (!input.empty() && visible.count(input) == 0) {
        diagnostics_->Error({where}, fmt::format("reads '{}', which nothing defines", input));
      }
    }
    std::set<std::string> names;
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (!names.insert(attribute.name()).second) {
        diagnostics_->Error({where},
                            fmt::format("attribute '{}' is given twice", attribute.name()));
      }
      if (attribute.has_t()) {
        if (Status s = CheckTensor(attribute.t(), external_); !s.ok()) {
          diagnostics_->Error({where},
                              fmt::format("attribute '{}': {}", attribute.name(), s.message()));
        }
      }
      if (attribute.has_g()) Check(attribute.g(), visible, false);
      for (const GraphProto& graph : attribute.graphs()) Check(graph, visible, false);
    }
  }

  const onnx::ModelProto& model_;
  const std::string& path_;
  ExternalData* external_;
  Diagnostics* diagnostics_;
};

void CheckVersions(const onnx::ModelProto& model, const std::string& path,
                   Diagnostics* diagnostics) {
  if (model.ir_version() < kMinIrVersion || model.ir_version() > onnx::Version::IR_VERSION) {
    diagnostics->Error({path},
                       fmt::format("IR version {}; versions {} to {} are read", model.ir_version(),
                                   kMinIrVersion, static_cast<int>(onnx::Version::IR_VERSION)));
  }
  if (model.opset_import_size() == 0) {
    diagnostics->Error({path}, "the model imports no operator set (opset_import is empty)");
  }
  std::map<std::string, int64_t> versions;
  for (const onnx::OperatorSetIdProto& import : model.opset_import()) {
    const std::string domain = NormalDomain(import.domain());
    const auto [it, inserted] = versions.emplace(domain, import.version());
    if (!inserted) {
      diagnostics->Error({path}, fmt::format("operator set '{}' is imported twice, as version {} "
                                             "and {}",
                                             domain, it->second, import.version()));
    } else if (domain.empty() && (import.version() < kMinOpset || import.version() > MaxOpset())) {
      diagnostics->Error({path}, fmt::format("opset {}; opsets {} to {} are read", import.version(),
                                             kMinOpset, MaxOpset()));
    }
  }
}

class NodeChecker {
 public:
  NodeChecker(const onnx::ModelProto& model, const std::string& path, Diagnostics* diagnostics)
      : model_(model), path_(path), diagnostics_(diagnostics) {}

  void Check(const NodeProto& node, int opset) {
    const std::string domain = NormalDomain(node.domain());
    const std::string where = NodeLocation(path_, node);
    const int version = domain.empty() ? opset : ImportedVersion(model_.opset_import(), domain);
    const auto& known = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
    if (version == 0) {
      diagnostics_->Error({where}, fmt::format("domain '{}' is not imported by the model", domain));
    } else if (known.count(domain) == 0) {
      // Contributed ops that exporters write under foreign domains are judged by the importer.
      if (domain != "com.microsoft") {
        diagnostics_->Error({where}, fmt::format("domain '{}' is unknown", domain));
      }
    } else {
      CheckSchema(node, domain, version, where);
    }
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      for (const NodeProto& inner : attribute.g().node()) Check(inner, OpsetInside(inner, opset));
      for (const GraphProto& graph : attribute.graphs()) {
        for (const NodeProto& inner : graph.node()) Check(inner, OpsetInside(inner, opset));
      }
    }
  }

 private:
  void CheckSchema(const NodeProto& node, const std::string& domain, int version,
                   const std::string& where) {
    const onnx::OpSchema* schema =
        onnx::OpSchemaRegistry::Instance()->GetSchema(node.op_type(), version, domain);
    // Not in ONNX, but written into the default domain by exporters.
    if (schema == nullptr && (node.op_type() == "SimplifiedLayerNormalization" ||
                              node.op_type() == "LayerNormalization")) {
      return;
    }
    if (schema == nullptr) {
      diagnostics_->Error({where},
                          fmt::format("no operator '{}' in opset {}{}", node.op_type(), version,
                                      domain.empty() ? "" : " of " + domain),
                          DidYouMean(node.op_type(), OpNames(domain)));
      return;
    }
    if (schema->Deprecated()) {
      // The one operator that was marked after files with it had been written: it keeps its meaning
      // (one scale per group), though ONNX no longer verifies it.
      if (node.op_type() == "GroupNormalization" && domain.empty() && node.input_size() == 3 &&
          node.output_size() == 1) {
        return;
      }
      diagnostics_->Error({where}, fmt::format("operator '{}' is no longer part of opset {}",
                                               node.op_type(), version));
      return;
    }
    try {
      schema->Verify(node);
    } catch (const std::exception& e) {
      diagnostics_->Error({where}, e.what());
    }
  }

  const std::vector<std::string>& OpNames(const std::string& domain) {
    auto [it, inserted] = names_.try_emplace(domain);
    if (inserted) {
      std::set<std::string> sorted;
      for (const onnx::OpSchema& schema : onnx::OpSchemaRegistry::get_all_schemas()) {
        if (schema.domain() == domain) sorted.insert(schema.Name());
      }
      it->second.assign(sorted.begin(), sorted.end());
    }
    return it->second;
  }

  const onnx::ModelProto& model_;
  const std::string& path_;
  Diagnostics* diagnostics_;
  std::map<std::string, std::vector<std::string>> names_;
};

}  // namespace

void ValidateModel(const onnx::ModelProto& model, const std::string& path, ExternalData* external,
                   Diagnostics* diagnostics) {
  CheckVersions(model, path, diagnostics);
  if (!model.has_graph()) {
    diagnostics->Error({path}, "the file holds no graph");
    return;
  }
  GraphChecker(model, path, external, diagnostics).Check(model.graph(), {}, true);
  if (model.training_info_size() > 0) {
    diagnostics->Note({path}, "training_info is not read; the strategy says how to train");
  }
}

void ValidateNodes(const onnx::ModelProto& model, const std::vector<int>& node_opset,
                   const std::string& path, Diagnostics* diagnostics) {
  NodeChecker checker(model, path, diagnostics);
  for (int i = 0; i < model.graph().node_size(); ++i) {
    const size_t index = static_cast<size_t>(i);
    checker.Check(model.graph().node(i), index < node_opset.size() ? node_opset[index] : 0);
  }
}

}  // namespace hyper::onnx_frontend
