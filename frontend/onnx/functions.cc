#include "frontend/onnx/functions.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <tuple>
#include <utility>

#include "base/strings.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::AttributeProto;
using onnx::FunctionProto;
using onnx::GraphProto;
using onnx::NodeProto;

constexpr int64_t kMaxNodes = 2'000'000;
// Metadata of a node inside a subgraph whose version is not that of the graph.
constexpr std::string_view kOpsetKey = "hyper.opset";
using FunctionKey = std::tuple<std::string, std::string, std::string>;  // domain, name, overload

FunctionKey KeyOf(const NodeProto& node) {
  return {NormalDomain(node.domain()), node.op_type(), node.overload()};
}

std::string KeyText(const FunctionKey& key) {
  const auto& [domain, name, overload] = key;
  return fmt::format("{}.{}{}{}", domain, name, overload.empty() ? "" : ":", overload);
}

class Expander {
 public:
  Expander(const FunctionProto& function, const NodeProto& call, NameSet* names)
      : call_(call), names_(names) {
    scope_ = call.name().empty() ? call.op_type() : call.name();
    for (int i = 0; i < function.input_size(); ++i) {
      rename_[function.input(i)] = i < call.input_size() ? call.input(i) : "";
    }
    for (int i = 0; i < function.output_size(); ++i) {
      const std::string& formal = function.output(i);
      const bool wanted = i < call.output_size() && !call.output(i).empty();
      if (!wanted) continue;
      if (rename_.count(formal) > 0) {  // an input (or an earlier output) handed through
        NodeProto copy;
        copy.set_op_type("Identity");
        copy.add_input(rename_[formal]);
        copy.add_output(call.output(i));
        copies_.push_back(std::move(copy));
      } else {
        rename_[formal] = call.output(i);
      }
    }
    for (const AttributeProto& a : call.attribute()) attributes_[a.name()] = &a;
    for (const AttributeProto& a : function.attribute_proto()) attributes_.emplace(a.name(), &a);
  }

  std::vector<NodeProto> Run(const FunctionProto& function) {
    std::vector<NodeProto> nodes;
    for (const NodeProto& source : function.node()) {
      NodeProto node = source;
      Rewrite(&node);
      nodes.push_back(std::move(node));
    }
    for (NodeProto& copy : copies_) nodes.push_back(std::move(copy));
    return nodes;
  }

 private:
  std::string Rename(const std::string& name) {
    if (name.empty()) return name;
    auto [it, inserted] = rename_.try_emplace(name);
    if (inserted) it->second = names_->MakeUnique(fmt::format("{}/{}", scope_, name));
    return it->second;
  }

  void Rewrite(NodeProto* node) {
    for (std::string& name : *node->mutable_input()) name = Rename(name);
    for (std::string& name : *node->mutable_output()) name = Rename(name);
    node->set_name(
        fmt::format("{}/{}", scope_, node->name().empty() ? node->op_type() : node->name()));
    google::protobuf::RepeatedPtrField<AttributeProto> kept;
    for (AttributeProto& attribute : *node->mutable_attribute()) {
      if (!attribute.ref_attr_name().empty()) {
        const auto it = attributes_.find(attribute.ref_attr_name());
        if (it == attributes_.end()) continue;  // the call leaves it at its default
        AttributeProto* copy = kept.Add();
        *copy = *it->second;
        copy->set_name(attribute.name());
        continue;
      }
      if (attribute.has_g()) RewriteGraph(attribute.mutable_g());
      for (GraphProto& graph : *attribute.mutable_graphs()) RewriteGraph(&graph);
      *kept.Add() = std::move(attribute);
    }
    node->mutable_attribute()->Swap(&kept);
  }

  void RewriteGraph(GraphProto* graph) {
    for (auto& value : *graph->mutable_input()) value.set_name(Rename(value.name()));
    for (auto& tensor : *graph->mutable_initializer()) tensor.set_name(Rename(tensor.name()));
    for (NodeProto& node : *graph->mutable_node()) Rewrite(&node);
    for (auto& value : *graph->mutable_output()) value.set_name(Rename(value.name()));
    graph->clear_value_info();
  }

  const NodeProto& call_;
  NameSet* names_;
  std::string scope_;
  std::map<std::string, std::string> rename_;
  std::map<std::string, const AttributeProto*> attributes_;
  std::vector<NodeProto> copies_;
};

void CollectNames(const GraphProto& graph, NameSet* names) {
  for (const auto& value : graph.input()) names->Add(value.name());
  for (const auto& value : graph.output()) names->Add(value.name());
  for (const auto& tensor : graph.initializer()) names->Add(tensor.name());
  for (const NodeProto& node : graph.node()) {
    for (const std::string& name : node.input()) names->Add(name);
    for (const std::string& name : node.output()) names->Add(name);
    for (const AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) CollectNames(attribute.g(), names);
      for (const GraphProto& g : attribute.graphs()) CollectNames(g, names);
    }
  }
}

class Inliner {
 public:
  Inliner(onnx::ModelProto* model, const std::string& file, Diagnostics* diagnostics)
      : model_(model), file_(file), diagnostics_(diagnostics) {}

  void Run(std::vector<int>* versions) {
    const int errors = diagnostics_->error_count();
    for (const FunctionProto& f : model_->functions()) {
      const FunctionKey key{NormalDomain(f.domain()), f.name(), f.overload()};
      if (!functions_.emplace(key, &f).second) {
        diagnostics_->Error({file_}, fmt::format("function '{}' is defined twice", KeyText(key)));
      }
    }
    for (const auto& [key, function] : functions_) CheckRecursion(key);
    const int opset = ImportedVersion(model_->opset_import(), "");
    if (diagnostics_->error_count() > errors) {
      versions->assign(static_cast<size_t>(model_->graph().node_size()), opset);
      return;
    }
    CollectNames(model_->graph(), &names_);
    ExpandGraph(model_->mutable_graph(), opset, versions);
    // Other domains that the functions import are those of the nodes that came from them.
    for (const FunctionProto& f : model_->functions()) {
      for (const onnx::OperatorSetIdProto& import : f.opset_import()) {
        const std::string domain = NormalDomain(import.domain());
        if (domain.empty() || ImportedVersion(model_->opset_import(), domain) != 0) continue;
        *model_->add_opset_import() = import;
      }
    }
    model_->clear_functions();
  }

 private:
  void CheckRecursion(const FunctionKey& key) {
    const int state = state_[key];
    if (state == 2) return;
    if (state == 1) {
      std::string chain;
      bool inside = false;
      for (const FunctionKey& k : stack_) {
        inside = inside || k == key;
        if (inside) chain += KeyText(k) + " -> ";
      }
      diagnostics_->Error(
          {file_}, fmt::format("functions call each other in a circle: {}{}", chain, KeyText(key)));
      return;
    }
    state_[key] = 1;
    stack_.push_back(key);
    for (const NodeProto& node : functions_.at(key)->node()) CheckCalls(node);
    stack_.pop_back();
    state_[key] = 2;
  }

  void CheckCalls(const NodeProto& node) {
    if (functions_.count(KeyOf(node)) > 0) CheckRecursion(KeyOf(node));
    for (const AttributeProto& attribute : node.attribute()) {
      for (const NodeProto& inner : attribute.g().node()) CheckCalls(inner);
      for (const GraphProto& graph : attribute.graphs()) {
        for (const NodeProto& inner : graph.node()) CheckCalls(inner);
      }
    }
  }

  void ExpandGraph(GraphProto* graph, int opset, std::vector<int>* versions) {
    google::protobuf::RepeatedPtrField<NodeProto> nodes;
    nodes.Swap(graph->mutable_node());
    for (NodeProto& node : nodes) ExpandNode(std::move(node), opset, opset, graph, versions);
  }

  // `opset`: of the node; `outer`: of the graph that it goes to.
  void ExpandNode(NodeProto node, int opset, int outer, GraphProto* graph,
                  std::vector<int>* versions) {
    if (count_ > kMaxNodes) return;
    const auto it = functions_.find(KeyOf(node));
    if (it == functions_.end()) {
      for (AttributeProto& attribute : *node.mutable_attribute()) {
        if (attribute.has_g()) ExpandGraph(attribute.mutable_g(), opset, nullptr);
        for (GraphProto& g : *attribute.mutable_graphs()) ExpandGraph(&g, opset, nullptr);
      }
      if (++count_ > kMaxNodes) {
        diagnostics_->Error({file_},
                            fmt::format("inlining the model's functions gives more than {} "
                                        "nodes",
                                        kMaxNodes));
        return;
      }
      if (versions == nullptr && opset != outer) {
        onnx::StringStringEntryProto* entry = node.add_metadata_props();
        entry->set_key(std::string(kOpsetKey));
        entry->set_value(std::to_string(opset));
      }
      *graph->add_node() = std::move(node);
      if (versions != nullptr) versions->push_back(opset);
      return;
    }
    const FunctionProto& function = *it->second;
    if (node.input_size() > function.input_size() || node.output_size() > function.output_size()) {
      diagnostics_->Error(
          {fmt::format("{}: node '{}' ({})", file_, node.name(), node.op_type())},
          fmt::format("the call has {} inputs and {} outputs, the function {} and {}",
                      node.input_size(), node.output_size(), function.input_size(),
                      function.output_size()));
      return;
    }
    const int own = ImportedVersion(function.opset_import(), "");
    for (NodeProto& inner : ExpandCall(function, node, &names_)) {
      ExpandNode(std::move(inner), own == 0 ? opset : own, outer, graph, versions);
    }
  }

  onnx::ModelProto* model_;
  const std::string& file_;
  Diagnostics* diagnostics_;
  std::map<FunctionKey, const FunctionProto*> functions_;
  std::map<FunctionKey, int> state_;  // 1: on the stack, 2: done
  std::vector<FunctionKey> stack_;
  NameSet names_;
  int64_t count_ = 0;
};

}  // namespace

std::string NormalDomain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

int ImportedVersion(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports,
                    const std::string& domain) {
  for (const onnx::OperatorSetIdProto& import : imports) {
    if (NormalDomain(import.domain()) == domain) return static_cast<int>(import.version());
  }
  return 0;
}

int OpsetInside(const NodeProto& node, int outer) {
  for (const auto& entry : node.metadata_props()) {
    if (entry.key() != kOpsetKey) continue;
    int version = 0;
    const std::string& text = entry.value();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
    if (error == std::errc() && end == text.data() + text.size()) return version;
  }
  return outer;
}

std::string NameSet::MakeUnique(const std::string& wanted) {
  std::string name = wanted;
  if (names_.insert(name).second) return name;
  int& next = next_.try_emplace(wanted, 1).first->second;
  do {
    name = fmt::format("{}_{}", wanted, next++);
  } while (!names_.insert(name).second);
  return name;
}

std::vector<NodeProto> ExpandCall(const FunctionProto& function, const NodeProto& call,
                                  NameSet* names) {
  return Expander(function, call, names).Run(function);
}

void InlineLocalFunctions(onnx::ModelProto* model, std::vector<int>* versions,
                          const std::string& file, Diagnostics* diagnostics) {
  Inliner(model, file, diagnostics).Run(versions);
}

}  // namespace hyper::onnx_frontend
