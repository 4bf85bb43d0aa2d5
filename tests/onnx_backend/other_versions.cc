#include "tests/onnx_backend/other_versions.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include <fmt/format.h>

#include "frontend/onnx/tensor_data.h"
#include "onnx/defs/schema.h"

namespace hyper::onnx_backend {
namespace {

using onnx::OpSchema;

constexpr int kOldestOpset = 7;
constexpr int kNewestOpset = 27;

std::string Lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// The attribute of `schema` that stands for an operand called `operand`: names differ in case, and
// the value that Pad fills with got a longer one.
std::string AttributeFor(const OpSchema& schema, const std::string& operand) {
  const std::string wanted = operand == "constant_value" ? "value" : Lower(operand);
  for (const auto& [name, attribute] : schema.attributes()) {
    if (Lower(name) == wanted) return name;
  }
  return {};
}

int FormalOf(const OpSchema& schema, const std::string& name) {
  for (size_t i = 0; i < schema.inputs().size(); ++i) {
    if (Lower(schema.inputs()[i].GetName()) == Lower(name)) return static_cast<int>(i);
  }
  return -1;
}

bool Variadic(const OpSchema& schema) {
  return !schema.inputs().empty() && schema.inputs().back().GetOption() == OpSchema::Variadic;
}

// A value of the case that does not depend on data: an input, an initializer, a Constant.
std::optional<onnx::TensorProto> ValueOf(const NodeCase& node_case, const std::string& name) {
  const auto input = node_case.inputs.find(name);
  if (input != node_case.inputs.end()) return input->second;
  for (const onnx::TensorProto& tensor : node_case.model.graph().initializer()) {
    if (tensor.name() == name) return tensor;
  }
  for (const onnx::NodeProto& node : node_case.model.graph().node()) {
    if (node.op_type() != "Constant" || node.output(0) != name) continue;
    for (const onnx::AttributeProto& a : node.attribute()) {
      if (a.name() == "value") return a.t();
    }
  }
  return std::nullopt;
}

Status SetAttribute(const OpSchema& schema, const std::string& name,
                    const onnx::TensorProto& tensor, onnx::NodeProto* node) {
  HYPER_ASSIGN_OR_RETURN(const ir::HostTensor value, TensorOf(tensor));
  const auto type = schema.attributes().at(name).type;
  onnx::AttributeProto* a = node->add_attribute();
  a->set_name(name);
  a->set_type(type);
  const int64_t elements = value.type().elements();
  const bool one = type == onnx::AttributeProto::INT || type == onnx::AttributeProto::FLOAT;
  if (one && elements != 1) {
    return InvalidArgument(fmt::format("'{}' has {} elements, version {} takes one", name, elements,
                                       schema.SinceVersion()));
  }
  for (int64_t i = 0; i < elements; ++i) {
    switch (type) {
      case onnx::AttributeProto::INT: a->set_i(value.ElementAsInt(i)); break;
      case onnx::AttributeProto::INTS: a->add_ints(value.ElementAsInt(i)); break;
      case onnx::AttributeProto::FLOAT:
        a->set_f(static_cast<float>(value.ElementAsDouble(i)));
        break;
      case onnx::AttributeProto::FLOATS:
        a->add_floats(static_cast<float>(value.ElementAsDouble(i)));
        break;
      default: return InvalidArgument("'" + name + "' is no attribute of numbers");
    }
  }
  return Status::Ok();
}

// An attribute as an operand of the same name: an initializer of the graph.
Status SetOperand(const OpSchema::FormalParameter& formal, int position,
                  const onnx::AttributeProto& attribute, onnx::GraphProto* graph,
                  onnx::NodeProto* node) {
  onnx::TensorProto* tensor = graph->add_initializer();
  tensor->set_name("operand." + formal.GetName());
  switch (attribute.type()) {
    case onnx::AttributeProto::INT:
      tensor->set_data_type(onnx::TensorProto::INT64);
      tensor->add_int64_data(attribute.i());
      if (formal.GetName() == "K") tensor->add_dims(1);
      break;
    case onnx::AttributeProto::INTS:
      tensor->set_data_type(onnx::TensorProto::INT64);
      tensor->add_dims(attribute.ints_size());
      for (const int64_t v : attribute.ints()) tensor->add_int64_data(v);
      break;
    case onnx::AttributeProto::FLOAT:
      tensor->set_data_type(onnx::TensorProto::FLOAT);
      tensor->add_float_data(attribute.f());
      break;
    case onnx::AttributeProto::FLOATS:
      tensor->set_data_type(onnx::TensorProto::FLOAT);
      tensor->add_dims(attribute.floats_size());
      for (const float v : attribute.floats()) tensor->add_float_data(v);
      break;
    default: return InvalidArgument("'" + attribute.name() + "' is no attribute of numbers");
  }
  while (node->input_size() <= position) node->add_input();
  node->set_input(position, tensor->name());
  return Status::Ok();
}

const onnx::AttributeProto* Find(const onnx::NodeProto& node, const std::string& name) {
  for (const onnx::AttributeProto& a : node.attribute()) {
    if (a.name() == name) return &a;
  }
  return nullptr;
}

// Operands of `from` as operands and attributes of `to`.
Status RewriteOperands(const NodeCase& node_case, const OpSchema& from, const OpSchema& to,
                       onnx::NodeProto* node) {
  const std::vector<std::string> given(node->input().begin(), node->input().end());
  node->clear_input();
  const auto place = [&](int position, const std::string& name) {
    while (node->input_size() <= position) node->add_input();
    node->set_input(position, name);
  };
  for (int i = 0; i < static_cast<int>(given.size()); ++i) {
    const std::string& name = given[static_cast<size_t>(i)];
    if (name.empty()) continue;
    if (Variadic(from) || Variadic(to)) {
      place(i, name);
      continue;
    }
    const std::string formal = from.inputs()[static_cast<size_t>(i)].GetName();
    const int same = FormalOf(to, formal);
    if (same >= 0) {
      place(same, name);
      continue;
    }
    const std::string attribute = AttributeFor(to, formal);
    if (attribute.empty()) {
      // Renamed operands keep their position; what the version has no word for is left out.
      const bool renamed = i < static_cast<int>(to.inputs().size()) &&
                           FormalOf(from, to.inputs()[static_cast<size_t>(i)].GetName()) < 0;
      if (renamed) place(i, name);
      continue;
    }
    if (Find(*node, attribute) != nullptr) continue;
    const auto value = ValueOf(node_case, name);
    if (!value.has_value()) {
      return InvalidArgument(fmt::format("operand '{}' is data, version {} has an attribute",
                                         formal, to.SinceVersion()));
    }
    HYPER_RETURN_IF_ERROR(SetAttribute(to, attribute, *value, node));
  }
  return Status::Ok();
}

// Attributes of `from` as attributes and operands of `to`.
Status RewriteAttributes(const OpSchema& from, const OpSchema& to, onnx::GraphProto* graph,
                         onnx::NodeProto* node) {
  const onnx::NodeProto before = *node;
  node->clear_attribute();
  for (const onnx::AttributeProto& a : before.attribute()) {
    if (to.attributes().contains(a.name())) {
      *node->add_attribute() = a;
      continue;
    }
    // Without it updates of one place would overwrite each other, in an order that is not defined.
    if (a.name() == "reduction" && a.s() != "none") {
      return InvalidArgument("version " + std::to_string(to.SinceVersion()) + " has no reduction");
    }
    for (size_t i = 0; i < to.inputs().size(); ++i) {
      if (AttributeFor(from, to.inputs()[i].GetName()) != a.name()) continue;
      HYPER_RETURN_IF_ERROR(SetOperand(to.inputs()[i], static_cast<int>(i), a, graph, node));
    }
  }
  for (const auto& [name, attribute] : to.attributes()) {
    if (Find(*node, name) != nullptr) continue;
    const auto old = from.attributes().find(name);
    if (old != from.attributes().end() && old->second.default_value.has_type() &&
        old->second.default_value.SerializeAsString() !=
            attribute.default_value.SerializeAsString()) {
      onnx::AttributeProto* a = node->add_attribute();
      *a = old->second.default_value;
      a->set_name(name);
    } else if (attribute.required) {
      return InvalidArgument(
          fmt::format("version {} needs an attribute '{}'", to.SinceVersion(), name));
    }
  }
  return Status::Ok();
}

}  // namespace

int OpsetOf(const std::string& op, int since) {
  for (int opset = kOldestOpset; opset <= kNewestOpset; ++opset) {
    const OpSchema* schema = onnx::OpSchemaRegistry::Schema(op, opset, "");
    if (schema != nullptr && !schema->deprecated() && schema->SinceVersion() == since) return opset;
  }
  return 0;
}

Result<NodeCase> AtVersion(const NodeCase& node_case, int since) {
  const int opset = OpsetOf(node_case.op, since);
  if (opset == 0) {
    return InvalidArgument(fmt::format("no opset from {} on has version {} of '{}'", kOldestOpset,
                                       since, node_case.op));
  }
  const OpSchema* from = onnx::OpSchemaRegistry::Schema(node_case.op, node_case.since, "");
  const OpSchema* to = onnx::OpSchemaRegistry::Schema(node_case.op, opset, "");
  NodeCase result = node_case;
  onnx::GraphProto* graph = result.model.mutable_graph();
  if (node_case.expanded || from == nullptr || graph->node_size() == 0 ||
      graph->node(graph->node_size() - 1).op_type() != node_case.op) {
    return InvalidArgument("the operator's own node is not in the model");
  }
  onnx::NodeProto* node = graph->mutable_node(graph->node_size() - 1);
  HYPER_RETURN_IF_ERROR(RewriteOperands(node_case, *from, *to, node));
  HYPER_RETURN_IF_ERROR(RewriteAttributes(*from, *to, graph, node));
  if (node->input_size() < to->min_input()) {
    return InvalidArgument(fmt::format("version {} needs {} operands, the case has {}", since,
                                       to->min_input(), node->input_size()));
  }
  const bool many =
      !to->outputs().empty() && to->outputs().back().GetOption() == OpSchema::Variadic;
  while (!many && node->output_size() > static_cast<int>(to->outputs().size())) {
    const std::string name = node->output(node->output_size() - 1);
    node->mutable_output()->RemoveLast();
    for (int i = graph->output_size(); i-- > 0;) {
      if (graph->output(i).name() != name) continue;
      graph->mutable_output()->DeleteSubrange(i, 1);
      result.outputs.erase(result.outputs.begin() + i);
    }
  }
  // Shapes of results may be others.
  for (onnx::ValueInfoProto& output : *graph->mutable_output()) {
    if (output.type().has_tensor_type()) {
      output.mutable_type()->mutable_tensor_type()->clear_shape();
    }
  }
  graph->clear_value_info();
  for (auto& import : *result.model.mutable_opset_import()) {
    if (import.domain().empty() || import.domain() == "ai.onnx") import.set_version(opset);
  }
  result.node = *node;
  result.since = since;
  result.name = fmt::format("{} at {}", node_case.name, since);
  return result;
}

}  // namespace hyper::onnx_backend
