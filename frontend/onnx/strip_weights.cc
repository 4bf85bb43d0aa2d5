// Takes the weights out of a model (part of export.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "frontend/onnx/export.h"
#include "frontend/onnx/export_format.h"
#include "frontend/onnx/functions.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

TensorProto* ConstantTensor(NodeProto* node) {
  for (AttributeProto& a : *node->mutable_attribute()) {
    if (a.name() == "value") return a.mutable_t();
  }
  return nullptr;
}

// The first tensor of the plan with a place that the graph's own nodes lack; null when they have
// all.
const ParameterDecision* WithoutPlace(const onnx::ModelProto& model, const ParameterPlan& plan) {
  std::set<std::string> names;
  for (const TensorProto& t : model.graph().initializer()) names.insert(t.name());
  for (const NodeProto& node : model.graph().node()) {
    for (const std::string& o : node.output()) names.insert(o);
  }
  const auto found =
      std::find_if_not(plan.tensors.begin(), plan.tensors.end(), [&](const ParameterDecision& d) {
        return !d.needed ||
               std::all_of(d.places.begin(), d.places.end(), [&](const TensorPlacement& p) {
                 return (p.place == TensorPlace::kOperand || d.constant ||
                         names.count(p.tensor) > 0) &&
                        std::all_of(
                            p.operands.begin(), p.operands.end(),
                            [&](const OperandSlot& o) { return names.count(o.node_output) > 0; });
               });
      });
  return found == plan.tensors.end() ? nullptr : &*found;
}

// A constant that operands share with a tensor which is trained gets an initializer of its own.
Status AddConstants(const ParameterPlan& plan, onnx::ModelProto* model) {
  std::map<std::string, NodeProto*> nodes;
  for (NodeProto& node : *model->mutable_graph()->mutable_node()) {
    if (node.output_size() > 0) nodes[node.output(0)] = &node;
  }
  for (const ParameterDecision& d : plan.tensors) {
    if (!d.constant || !d.needed) continue;
    for (const TensorPlacement& p : d.places) {
      if (p.place != TensorPlace::kOperand) continue;
      const ir::HostTensor value = ApplyView(d.value, p.view);
      TensorProto* t = AddInitializer(model, p.tensor, DTypeToOnnx(d.type.dtype), p.view.dims);
      t->set_raw_data(value.bytes().data(), value.bytes().size());
      for (const OperandSlot& o : p.operands) {
        const auto it = nodes.find(o.node_output);
        if (it == nodes.end()) return Internal("no node for the constant " + d.name);
        HYPER_RETURN_IF_ERROR(SetOperand(it->second, o.slot, p.tensor));
      }
    }
  }
  return Status::Ok();
}

// Brings external data into the message, as long as it fits into one.
class Inliner {
 public:
  explicit Inliner(const std::string& folder) : external_(folder) {}

  Status Run(onnx::ModelProto* model) {
    HYPER_RETURN_IF_ERROR(Graph(model->mutable_graph()));
    for (onnx::FunctionProto& f : *model->mutable_functions()) {
      HYPER_RETURN_IF_ERROR(Nodes(f.mutable_node()));
    }
    return Status::Ok();
  }

 private:
  Status Tensor(TensorProto* t) {
    if (t->data_location() != TensorProto::EXTERNAL) return Status::Ok();
    HYPER_ASSIGN_OR_RETURN(const FileBytes file, external_.Find(*t));
    const int64_t size = static_cast<int64_t>(file.bytes.size());
    if (size > left_) {
      return ResourceExhausted(fmt::format(
          "constant '{}' ({} bytes of external data): the model's constants do not fit into the {} "
          "bytes of a model file; what is trained or frozen as a parameter need not",
          t->name(), size, kMaxMessage));
    }
    left_ -= size;
    ClearData(t);
    t->set_raw_data(file.bytes.data(), file.bytes.size());
    return Status::Ok();
  }

  Status Graph(GraphProto* graph) {
    for (TensorProto& t : *graph->mutable_initializer()) HYPER_RETURN_IF_ERROR(Tensor(&t));
    return Nodes(graph->mutable_node());
  }

  Status Nodes(google::protobuf::RepeatedPtrField<NodeProto>* nodes) {
    for (NodeProto& node : *nodes) {
      for (AttributeProto& a : *node.mutable_attribute()) {
        if (a.has_t()) HYPER_RETURN_IF_ERROR(Tensor(a.mutable_t()));
        if (a.has_g()) HYPER_RETURN_IF_ERROR(Graph(a.mutable_g()));
        for (GraphProto& g : *a.mutable_graphs()) HYPER_RETURN_IF_ERROR(Graph(&g));
      }
    }
    return Status::Ok();
  }

  ExternalData external_;
  int64_t left_ = kMaxMessage;
};

// Copies a message without the bytes of its large initializers, so that stripping a model of many
// gigabytes does not double it first.
onnx::ModelProto CopyWithout(const onnx::ModelProto& model, const std::set<std::string>& stripped) {
  onnx::ModelProto copy;
  copy.set_ir_version(model.ir_version());
  copy.set_producer_name(model.producer_name());
  copy.set_producer_version(model.producer_version());
  copy.set_domain(model.domain());
  copy.set_model_version(model.model_version());
  copy.set_doc_string(model.doc_string());
  *copy.mutable_opset_import() = model.opset_import();
  *copy.mutable_metadata_props() = model.metadata_props();
  *copy.mutable_functions() = model.functions();
  const GraphProto& from = model.graph();
  GraphProto* to = copy.mutable_graph();
  to->set_name(from.name());
  to->set_doc_string(from.doc_string());
  *to->mutable_input() = from.input();
  *to->mutable_output() = from.output();
  *to->mutable_value_info() = from.value_info();
  *to->mutable_quantization_annotation() = from.quantization_annotation();
  *to->mutable_metadata_props() = from.metadata_props();
  *to->mutable_node() = from.node();
  for (const TensorProto& t : from.initializer()) {
    TensorProto* added = to->add_initializer();
    if (stripped.count(t.name()) == 0) {
      *added = t;
      continue;
    }
    added->set_name(t.name());
    added->set_data_type(t.data_type());
    *added->mutable_dims() = t.dims();
    added->set_doc_string(t.doc_string());
  }
  return copy;
}

}  // namespace

Result<std::string> StripWeights(const LoadedModel& model, const ParameterPlan& plan,
                                 Diagnostics* diagnostics) {
  return Guard([&]() -> Result<std::string> {
    const ParameterDecision* hidden = WithoutPlace(*model.original, plan);
    if (hidden != nullptr && model.original != model.proto && diagnostics != nullptr) {
      diagnostics->Note(
          {model.path},
          fmt::format(
              "an exported model will have the functions of this file inlined: '{}' has its "
              "place inside one",
              hidden->name));
    }
    const onnx::ModelProto& base = hidden == nullptr ? *model.original : *model.proto;
    nlohmann::json entries = nlohmann::json::array();
    std::set<std::string> stripped;
    for (const ParameterDecision& d : plan.tensors) {
      if (d.constant || !d.needed) continue;
      for (const TensorPlacement& p : d.places) {
        nlohmann::json entry = {{"name", d.name},
                                {"place", TensorPlaceName(p.place)},
                                {"tensor", p.tensor},
                                {"dims", d.type.dims},
                                {"file_dims", p.view.dims},
                                {"permutation", p.view.permutation},
                                {"operands", nlohmann::json::array()},
                                {"type", DTypeToOnnx(d.type.dtype)}};
        for (const OperandSlot& o : p.operands) {
          entry["operands"].push_back({{"node", o.node_output}, {"slot", o.slot}});
        }
        entries.push_back(std::move(entry));
        if (p.place == TensorPlace::kInitializer || p.place == TensorPlace::kConstantNode) {
          stripped.insert(p.tensor);
        }
      }
    }
    onnx::ModelProto copy = CopyWithout(base, stripped);
    for (NodeProto& node : *copy.mutable_graph()->mutable_node()) {
      if (node.op_type() != "Constant" || node.output_size() != 1 ||
          stripped.count(node.output(0)) == 0)
        continue;
      if (TensorProto* t = ConstantTensor(&node); t != nullptr) ClearData(t);
    }
    HYPER_RETURN_IF_ERROR(Inliner(DirName(model.path)).Run(&copy));
    HYPER_RETURN_IF_ERROR(AddConstants(plan, &copy));
    auto* metadata = copy.add_metadata_props();
    metadata->set_key(kTensorsKey);
    metadata->set_value(entries.dump());
    if (copy.ByteSizeLong() > static_cast<size_t>(kMaxMessage)) {
      return ResourceExhausted("the model without its weights is larger than 2 GiB");
    }
    std::string bytes;
    if (!copy.SerializeToString(&bytes)) return Internal("the model cannot be serialized");
    return bytes;
  });
}

}  // namespace hyper::onnx_frontend
