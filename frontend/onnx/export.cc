#include "frontend/onnx/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/strings.h"
#include "frontend/onnx/functions.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

constexpr const char* kMetadataKey = "hyper.tensors";
constexpr int64_t kMaxMessage = std::numeric_limits<int>::max();
constexpr int64_t kExternalTensorBytes = 1024;  // smaller ones stay in the message
constexpr int64_t kExternalAlignment = 64;

void ClearData(TensorProto* t) {
  t->clear_raw_data();
  t->clear_float_data();
  t->clear_int32_data();
  t->clear_int64_data();
  t->clear_double_data();
  t->clear_uint64_data();
  t->clear_external_data();
  t->clear_data_location();
}

TensorProto* FindInitializer(GraphProto* graph, const std::string& name) {
  for (TensorProto& t : *graph->mutable_initializer()) {
    if (t.name() == name) return &t;
  }
  return nullptr;
}

NodeProto* FindProducer(GraphProto* graph, const std::string& output) {
  for (NodeProto& node : *graph->mutable_node()) {
    if (std::find(node.output().begin(), node.output().end(), output) != node.output().end())
      return &node;
  }
  return nullptr;
}

TensorProto* ConstantTensor(NodeProto* node) {
  for (AttributeProto& a : *node->mutable_attribute()) {
    if (a.name() == "value") return a.mutable_t();
  }
  return nullptr;
}

// True when every place of the plan exists in the graph's own nodes.
bool HasAllPlaces(const onnx::ModelProto& model, const ParameterPlan& plan) {
  std::set<std::string> names;
  for (const TensorProto& t : model.graph().initializer()) names.insert(t.name());
  for (const NodeProto& node : model.graph().node()) {
    for (const std::string& o : node.output()) names.insert(o);
  }
  return std::all_of(plan.tensors.begin(), plan.tensors.end(), [&](const ParameterDecision& d) {
    return d.constant || !d.needed ||
           (names.count(d.source) > 0 &&
            (d.place == TensorPlace::kOperand
                 ? names.count(d.node_output) > 0
                 : d.place != TensorPlace::kIdentity || names.count(d.name) > 0));
  });
}

Status Inline(TensorProto* t, ExternalData* external) {
  if (t->data_location() != TensorProto::EXTERNAL) return Status::Ok();
  HYPER_ASSIGN_OR_RETURN(const ExternalData::Bytes bytes, external->Find(*t));
  ClearData(t);
  t->set_raw_data(bytes.data, static_cast<size_t>(bytes.size));
  return Status::Ok();
}

Status InlineAll(GraphProto* graph, ExternalData* external) {
  for (TensorProto& t : *graph->mutable_initializer()) HYPER_RETURN_IF_ERROR(Inline(&t, external));
  for (NodeProto& node : *graph->mutable_node()) {
    for (AttributeProto& a : *node.mutable_attribute()) {
      if (a.has_t()) HYPER_RETURN_IF_ERROR(Inline(a.mutable_t(), external));
      if (a.has_g()) HYPER_RETURN_IF_ERROR(InlineAll(a.mutable_g(), external));
      for (GraphProto& g : *a.mutable_graphs()) HYPER_RETURN_IF_ERROR(InlineAll(&g, external));
    }
  }
  return Status::Ok();
}

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

class Exporter {
 public:
  Exporter(onnx::ModelProto model, const std::map<std::string, ir::HostTensor>& values)
      : model_(std::move(model)), values_(values) {}

  Status Fill() {
    std::string metadata;
    auto* props = model_.mutable_metadata_props();
    for (int i = props->size() - 1; i >= 0; --i) {
      if (props->Get(i).key() != kMetadataKey) continue;
      metadata = props->Get(i).value();
      props->DeleteSubrange(i, 1);
    }
    const nlohmann::json entries = nlohmann::json::parse(metadata, nullptr, false);
    if (!entries.is_array())
      return DataLoss("the stripped model does not say where its tensors belong");
    std::vector<std::string> missing;
    for (const auto& entry : entries) {
      const std::string name = entry.at("name").get<std::string>();
      if (values_.count(name) == 0) missing.push_back(name);
    }
    if (!missing.empty()) return NotFound(fmt::format("no value for {}", Join(missing, ", ")));
    for (const auto& entry : entries) HYPER_RETURN_IF_ERROR(Place(entry));
    RemoveIdentities();
    EvaluationMode(model_.mutable_graph());
    for (onnx::FunctionProto& f : *model_.mutable_functions())
      EvaluationMode(f.mutable_node(), nullptr);
    return Status::Ok();
  }

  Status Write(const std::string& path, const ExportOptions& options) {
    FileSystem* fs = options.file_system == nullptr ? RealFileSystem() : options.file_system;
    int64_t total = 0;
    for (const TensorProto& t : model_.graph().initializer())
      total += static_cast<int64_t>(t.raw_data().size());
    if (total > options.external_above || total > kMaxMessage / 2) {
      HYPER_RETURN_IF_ERROR(WriteExternal(fs, path));
    }
    if (model_.ByteSizeLong() > static_cast<size_t>(kMaxMessage)) {
      return ResourceExhausted(fmt::format("'{}' would have {} bytes; a model file ends at {}",
                                           path, model_.ByteSizeLong(), kMaxMessage));
    }
    std::string bytes;
    if (!model_.SerializeToString(&bytes)) return Internal("the model cannot be serialized");
    return WriteFileAtomic(fs, path, bytes);
  }

 private:
  Status Place(const nlohmann::json& entry) {
    const std::string name = entry.at("name").get<std::string>();
    const std::string place = entry.at("place").get<std::string>();
    const auto dtype = DTypeFromOnnx(entry.at("type").get<int>());
    const ir::HostTensor& given = values_.at(name);
    const ir::Dims dims = entry.at("dims").get<ir::Dims>();
    if (!dtype.has_value() || given.type().dims != dims || !given.defined()) {
      return InvalidArgument(fmt::format("value of '{}' has shape {}, the model has {}", name,
                                         FormatDims(given.type().dims), FormatDims(dims)));
    }
    TensorProto tensor = WriteTensor(ConvertTensor(given, *dtype), name);
    GraphProto* graph = model_.mutable_graph();
    if (place == TensorPlaceName(TensorPlace::kInitializer)) {
      TensorProto* slot = FindInitializer(graph, name);
      if (slot == nullptr) return DataLoss(fmt::format("the model has no initializer '{}'", name));
      slot->set_raw_data(std::move(*tensor.mutable_raw_data()));
      return Status::Ok();
    }
    if (place == TensorPlaceName(TensorPlace::kConstantNode)) {
      NodeProto* node = FindProducer(graph, name);
      if (node == nullptr) return DataLoss(fmt::format("the model has no constant '{}'", name));
      node->clear_attribute();
      AttributeProto* a = node->add_attribute();
      a->set_name("value");
      a->set_type(AttributeProto::TENSOR);
      tensor.clear_name();
      *a->mutable_t() = std::move(tensor);
      return Status::Ok();
    }
    if (place == TensorPlaceName(TensorPlace::kIdentity)) {
      identities_.insert(name);
    } else {
      NodeProto* node = FindProducer(graph, entry.at("node").get<std::string>());
      const int slot = entry.at("slot").get<int>();
      if (node == nullptr || slot >= node->input_size()) {
        return DataLoss(fmt::format("the model has no operand for '{}'", name));
      }
      node->set_input(slot, name);
    }
    if (model_.ir_version() < 4) {  // initializers had to be inputs then
      onnx::ValueInfoProto* input = graph->add_input();
      input->set_name(name);
      auto* type = input->mutable_type()->mutable_tensor_type();
      type->set_elem_type(tensor.data_type());
      type->mutable_shape();
      for (int64_t d : dims) type->mutable_shape()->add_dim()->set_dim_value(d);
    }
    *graph->add_initializer() = std::move(tensor);
    return Status::Ok();
  }

  void RemoveIdentities() {
    auto* nodes = model_.mutable_graph()->mutable_node();
    google::protobuf::RepeatedPtrField<NodeProto> kept;
    for (NodeProto& node : *nodes) {
      if (node.op_type() == "Identity" && node.output_size() == 1 &&
          identities_.count(node.output(0)) > 0) {
        continue;
      }
      *kept.Add() = std::move(node);
    }
    nodes->Swap(&kept);
  }

  static void EvaluationMode(GraphProto* graph) { EvaluationMode(graph->mutable_node(), graph); }

  static void EvaluationMode(google::protobuf::RepeatedPtrField<NodeProto>* nodes,
                             GraphProto* graph) {
    std::set<std::string> read;
    for (const NodeProto& node : *nodes) {
      for (const std::string& name : NamesRead(node)) read.insert(name);
    }
    if (graph != nullptr) {
      for (const auto& output : graph->output()) read.insert(output.name());
    }
    google::protobuf::RepeatedPtrField<NodeProto> result;
    for (NodeProto& node : *nodes) {
      for (AttributeProto& a : *node.mutable_attribute()) {
        if (a.has_g()) EvaluationMode(a.mutable_g());
        for (GraphProto& g : *a.mutable_graphs()) EvaluationMode(&g);
      }
      const bool standard = NormalDomain(node.domain()).empty();
      std::vector<NodeProto> copies;
      if (standard && node.op_type() == "BatchNormalization") {
        auto* attributes = node.mutable_attribute();
        for (int i = attributes->size() - 1; i >= 0; --i) {
          if (attributes->Get(i).name() == "training_mode") attributes->DeleteSubrange(i, 1);
        }
        for (int i = 1; i < node.output_size(); ++i) {
          if (read.count(node.output(i)) == 0) continue;
          NodeProto copy;  // a running statistic that something reads stays as it is
          copy.set_op_type("Identity");
          copy.add_input(node.input(i % 2 == 1 ? 3 : 4));
          copy.add_output(node.output(i));
          copies.push_back(std::move(copy));
        }
        while (node.output_size() > 1) node.mutable_output()->RemoveLast();
      }
      if (standard && node.op_type() == "Dropout" && node.input_size() > 2) {
        node.mutable_input()->RemoveLast();
      }
      *result.Add() = std::move(node);
      for (NodeProto& copy : copies) *result.Add() = std::move(copy);
    }
    nodes->Swap(&result);
  }

  Status WriteExternal(FileSystem* fs, const std::string& path) {
    const std::string data_path = path + ".data";
    const std::string temporary = data_path + ".tmp";
    HYPER_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, fs->Create(temporary));
    int64_t offset = 0;
    const std::string zeros(kExternalAlignment, '\0');
    for (TensorProto& t : *model_.mutable_graph()->mutable_initializer()) {
      const int64_t size = static_cast<int64_t>(t.raw_data().size());
      if (size < kExternalTensorBytes) continue;
      const int64_t padding =
          (kExternalAlignment - offset % kExternalAlignment) % kExternalAlignment;
      HYPER_RETURN_IF_ERROR(
          file->Append(std::as_bytes(std::span(zeros.data(), static_cast<size_t>(padding)))));
      offset += padding;
      HYPER_RETURN_IF_ERROR(
          file->Append(std::as_bytes(std::span(t.raw_data().data(), t.raw_data().size()))));
      ClearData(&t);
      t.set_data_location(TensorProto::EXTERNAL);
      auto add = [&](const char* key, const std::string& value) {
        auto* e = t.add_external_data();
        e->set_key(key);
        e->set_value(value);
      };
      add("location", BaseName(data_path));
      add("offset", std::to_string(offset));
      add("length", std::to_string(size));
      offset += size;
    }
    HYPER_RETURN_IF_ERROR(file->Sync());
    HYPER_RETURN_IF_ERROR(file->Close());
    return fs->Rename(temporary, data_path);
  }

  onnx::ModelProto model_;
  const std::map<std::string, ir::HostTensor>& values_;
  std::set<std::string> identities_;
};

}  // namespace

Result<std::string> StripWeights(const LoadedModel& model, const ParameterPlan& plan) {
  return Guard([&]() -> Result<std::string> {
    const onnx::ModelProto& base =
        HasAllPlaces(*model.original, plan) ? *model.original : *model.proto;
    nlohmann::json entries = nlohmann::json::array();
    std::set<std::string> stripped;
    for (const ParameterDecision& d : plan.tensors) {
      if (d.constant || !d.needed) continue;
      nlohmann::json entry = {{"name", d.name},
                              {"place", TensorPlaceName(d.place)},
                              {"dims", d.type.dims},
                              {"type", DTypeToOnnx(d.type.dtype)}};
      if (d.place == TensorPlace::kOperand) {
        entry["node"] = d.node_output;
        entry["slot"] = d.slot;
      }
      entries.push_back(std::move(entry));
      if (d.place == TensorPlace::kInitializer || d.place == TensorPlace::kConstantNode)
        stripped.insert(d.name);
    }
    onnx::ModelProto copy = CopyWithout(base, stripped);
    for (NodeProto& node : *copy.mutable_graph()->mutable_node()) {
      if (node.op_type() != "Constant" || node.output_size() != 1 ||
          stripped.count(node.output(0)) == 0)
        continue;
      if (TensorProto* t = ConstantTensor(&node); t != nullptr) ClearData(t);
    }
    ExternalData external(DirName(model.path));
    HYPER_RETURN_IF_ERROR(InlineAll(copy.mutable_graph(), &external));
    auto* metadata = copy.add_metadata_props();
    metadata->set_key(kMetadataKey);
    metadata->set_value(entries.dump());
    if (copy.ByteSizeLong() > static_cast<size_t>(kMaxMessage)) {
      return ResourceExhausted("the model without its weights is larger than 2 GiB");
    }
    std::string bytes;
    if (!copy.SerializeToString(&bytes)) return Internal("the model cannot be serialized");
    return bytes;
  });
}

Status ExportTrained(std::string_view stripped_model,
                     const std::map<std::string, ir::HostTensor>& values, const std::string& path,
                     const ExportOptions& options) {
  return Guard([&]() -> Status {
    onnx::ModelProto model;
    if (stripped_model.size() > static_cast<size_t>(kMaxMessage) ||
        !model.ParseFromArray(stripped_model.data(), static_cast<int>(stripped_model.size()))) {
      return DataLoss("the model without weights is damaged");
    }
    Exporter exporter(std::move(model), values);
    HYPER_RETURN_IF_ERROR(exporter.Fill());
    return exporter.Write(path, options);
  });
}

}  // namespace hyper::onnx_frontend
