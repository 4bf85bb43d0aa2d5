// Topological order of a file's nodes, and what a cycle looks like (part of load.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "frontend/onnx/load.h"

namespace hyper::onnx_frontend {
namespace {

void ReadBySubgraph(const onnx::GraphProto& graph, std::set<std::string> inner,
                    std::vector<std::string>* names) {
  for (const auto& value : graph.input()) inner.insert(value.name());
  for (const auto& tensor : graph.initializer()) inner.insert(tensor.name());
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& output : node.output()) inner.insert(output);
  }
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& name : node.input()) {
      if (!name.empty() && inner.count(name) == 0) names->push_back(name);
    }
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) ReadBySubgraph(attribute.g(), inner, names);
      for (const auto& g : attribute.graphs()) ReadBySubgraph(g, inner, names);
    }
  }
  for (const auto& value : graph.output()) {
    if (!value.name().empty() && inner.count(value.name()) == 0) names->push_back(value.name());
  }
}

}  // namespace

std::vector<std::string> NamesRead(const onnx::NodeProto& node) {
  std::vector<std::string> names;
  for (const std::string& name : node.input()) {
    if (!name.empty()) names.push_back(name);
  }
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) ReadBySubgraph(attribute.g(), {}, &names);
    for (const auto& g : attribute.graphs()) ReadBySubgraph(g, {}, &names);
  }
  if (node.op_type() == "Gradient" && node.domain() == "ai.onnx.preview.training") {
    // The function to differentiate is named by its tensors.
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (!attribute.s().empty()) names.push_back(attribute.s());
      for (const std::string& name : attribute.strings()) {
        if (!name.empty()) names.push_back(name);
      }
    }
  }
  return names;
}

void SortNodes(onnx::GraphProto* graph, std::vector<int>* node_opset, const std::string& path,
               Diagnostics* diagnostics) {
  const int count = graph->node_size();
  std::map<std::string, int> producer;
  for (int i = 0; i < count; ++i) {
    for (const std::string& output : graph->node(i).output()) producer.emplace(output, i);
  }
  std::vector<std::vector<int>> users(static_cast<size_t>(count));
  std::vector<int> missing(static_cast<size_t>(count), 0);
  std::string first_late;
  for (int i = 0; i < count; ++i) {
    std::set<int> sources;
    for (const std::string& name : NamesRead(graph->node(i))) {
      const auto it = producer.find(name);
      if (it == producer.end()) continue;
      sources.insert(it->second);
      if (it->second >= i && first_late.empty()) {
        first_late = fmt::format("node '{}' reads '{}' before it is computed",
                                 NodeTitle(graph->node(i)), name);
      }
    }
    missing[static_cast<size_t>(i)] = static_cast<int>(sources.size());
    for (int s : sources) users[static_cast<size_t>(s)].push_back(i);
  }
  if (first_late.empty()) return;
  std::set<int> ready;
  for (int i = 0; i < count; ++i) {
    if (missing[static_cast<size_t>(i)] == 0) ready.insert(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int i = *ready.begin();
    ready.erase(ready.begin());
    order.push_back(i);
    for (int u : users[static_cast<size_t>(i)]) {
      if (--missing[static_cast<size_t>(u)] == 0) ready.insert(u);
    }
  }
  if (static_cast<int>(order.size()) < count) {
    // Walk backwards over unfinished nodes until one repeats.
    int node = 0;
    while (missing[static_cast<size_t>(node)] == 0) ++node;
    std::vector<int> walk;
    std::vector<bool> walked(static_cast<size_t>(count));
    while (!walked[static_cast<size_t>(node)]) {
      walked[static_cast<size_t>(node)] = true;
      walk.push_back(node);
      for (const std::string& name : NamesRead(graph->node(node))) {
        const auto it = producer.find(name);
        if (it != producer.end() && missing[static_cast<size_t>(it->second)] > 0) {
          node = it->second;
          break;
        }
      }
    }
    std::vector<int> cycle(std::find(walk.begin(), walk.end(), node), walk.end());
    std::reverse(cycle.begin(), cycle.end());
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    std::string text;
    constexpr size_t kShown = 8;
    for (size_t k = 0; k < std::min(cycle.size(), kShown); ++k) {
      const onnx::NodeProto& member = graph->node(cycle[k]);
      text += fmt::format("'{}' ({}) -> ", NodeTitle(member), member.op_type());
    }
    if (cycle.size() > kShown) text += fmt::format("{} more -> ", cycle.size() - kShown);
    diagnostics->Error({path}, fmt::format("the graph has a cycle: {}'{}'", text,
                                           NodeTitle(graph->node(cycle.front()))));
    return;
  }
  diagnostics->Warning(
      {path}, fmt::format("nodes are not in topological order ({}); sorted them", first_late));
  google::protobuf::RepeatedPtrField<onnx::NodeProto> sorted;
  std::vector<int> versions;
  for (int i : order) {
    *sorted.Add() = std::move(*graph->mutable_node(i));
    versions.push_back((*node_opset)[static_cast<size_t>(i)]);
  }
  graph->mutable_node()->Swap(&sorted);
  *node_opset = std::move(versions);
}

}  // namespace hyper::onnx_frontend
