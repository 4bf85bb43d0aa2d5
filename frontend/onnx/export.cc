#include "frontend/onnx/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/strings.h"
#include "frontend/onnx/export_format.h"
#include "frontend/onnx/functions.h"
#include "frontend/onnx/torch_metadata.h"

namespace hyper::onnx_frontend {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

constexpr int64_t kExternalTensorBytes = 1024;  // smaller ones stay in the message
constexpr int64_t kExternalAlignment = 64;

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

// The file of external data beside a model, complete once it is finished; removed otherwise.
class DataFile {
 public:
  DataFile(FileSystem* fs, const std::string& model_path)
      : fs_(fs), path_(model_path + ".data"), temporary_(path_ + ".tmp") {}
  ~DataFile() {
    if (file_ == nullptr) return;
    file_.reset();
    (void)fs_->RemoveAll(temporary_);  // what failed before is what is reported
  }
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  Status Create() {
    HYPER_ASSIGN_OR_RETURN(file_, fs_->Create(temporary_));
    return Status::Ok();
  }

  // Appends `data`, which may lie in `t`, and lets `t` refer to it instead of holding it.
  Status Add(TensorProto* t, std::span<const std::byte> data) {
    static constexpr std::byte kZeros[kExternalAlignment] = {};
    const int64_t padding = (kExternalAlignment - end_ % kExternalAlignment) % kExternalAlignment;
    HYPER_RETURN_IF_ERROR(file_->Append(std::span(kZeros, static_cast<size_t>(padding))));
    HYPER_RETURN_IF_ERROR(file_->Append(data));
    const int64_t offset = end_ + padding;
    end_ = offset + static_cast<int64_t>(data.size());
    ClearData(t);
    t->set_data_location(TensorProto::EXTERNAL);
    auto add = [&](const char* key, const std::string& value) {
      onnx::StringStringEntryProto* entry = t->add_external_data();
      entry->set_key(key);
      entry->set_value(value);
    };
    add("location", BaseName(path_));
    add("offset", std::to_string(offset));
    add("length", std::to_string(end_ - offset));
    return Status::Ok();
  }

  Status Finish() {
    HYPER_RETURN_IF_ERROR(file_->Sync());
    HYPER_RETURN_IF_ERROR(file_->Close());
    HYPER_RETURN_IF_ERROR(fs_->Rename(temporary_, path_));
    file_.reset();
    return Status::Ok();
  }

 private:
  FileSystem* fs_;
  std::string path_;
  std::string temporary_;
  std::unique_ptr<WritableFile> file_;  // null: nothing to remove
  int64_t end_ = 0;
};

class Exporter {
 public:
  Exporter(onnx::ModelProto model, const std::map<std::string, ir::HostTensor>& values,
           const std::string& path, const ExportOptions& options)
      : model_(std::move(model)),
        values_(values),
        path_(path),
        external_above_(std::min(options.external_above, kMaxMessage / 2)),
        fs_(options.file_system == nullptr ? RealFileSystem() : options.file_system),
        data_file_(fs_, path) {}

  Status Run() {
    HYPER_ASSIGN_OR_RETURN(const nlohmann::json entries, TakeEntries());
    HYPER_RETURN_IF_ERROR(ChooseLocation(entries));
    for (const auto& entry : entries) HYPER_RETURN_IF_ERROR(Place(entry));
    RemoveIdentities();
    EvaluationMode(model_.mutable_graph());
    for (onnx::FunctionProto& f : *model_.mutable_functions())
      EvaluationMode(f.mutable_node(), nullptr);
    return Write();
  }

 private:
  // The list of tensors that StripWeights left, taken out of the model.
  Result<nlohmann::json> TakeEntries() {
    std::string metadata;
    auto* props = model_.mutable_metadata_props();
    for (int i = props->size() - 1; i >= 0; --i) {
      if (props->Get(i).key() != kTensorsKey) continue;
      metadata = props->Get(i).value();
      props->DeleteSubrange(i, 1);
    }
    nlohmann::json entries = nlohmann::json::parse(metadata, nullptr, false);
    if (!entries.is_array())
      return DataLoss("the stripped model does not say where its tensors belong");
    std::vector<std::string> missing;
    for (const auto& entry : entries) {
      const std::string name = entry.at("name").get<std::string>();
      if (values_.count(name) == 0) missing.push_back(name);
    }
    if (!missing.empty()) return NotFound(fmt::format("no value for {}", Join(missing, ", ")));
    return entries;
  }

  // Decides where data goes before any is copied: a value is written from where it lies, so that a
  // model of many gigabytes is not held twice.
  Status ChooseLocation(const nlohmann::json& entries) {
    int64_t total = 0;
    for (const auto& entry : entries) {
      const ir::TensorType& type = values_.at(entry.at("name").get<std::string>()).type();
      const auto dtype = DTypeFromOnnx(entry.at("type").get<int>());
      total += type.elements() * ir::DTypeBytes(dtype.value_or(type.dtype));
    }
    for (const TensorProto& t : model_.graph().initializer())
      total += static_cast<int64_t>(t.raw_data().size());
    external_ = total > external_above_;
    return external_ ? data_file_.Create() : Status::Ok();
  }

  Status SetData(TensorProto* t, std::span<const std::byte> data) {
    if (external_ && static_cast<int64_t>(data.size()) >= kExternalTensorBytes) {
      return data_file_.Add(t, data);
    }
    t->set_raw_data(data.data(), data.size());
    return Status::Ok();
  }

  Status Write() {
    if (external_) {
      // Constants that stayed in the message.
      for (TensorProto& t : *model_.mutable_graph()->mutable_initializer()) {
        const std::string& raw = t.raw_data();
        if (static_cast<int64_t>(raw.size()) < kExternalTensorBytes) continue;
        HYPER_RETURN_IF_ERROR(data_file_.Add(&t, std::as_bytes(std::span(raw.data(), raw.size()))));
      }
    }
    if (model_.ByteSizeLong() > static_cast<size_t>(kMaxMessage)) {
      return ResourceExhausted(fmt::format("'{}' would have {} bytes; a model file ends at {}",
                                           path_, model_.ByteSizeLong(), kMaxMessage));
    }
    std::string bytes;
    if (!model_.SerializeToString(&bytes)) return Internal("the model cannot be serialized");
    if (external_) HYPER_RETURN_IF_ERROR(data_file_.Finish());
    return WriteFileAtomic(fs_, path_, bytes);
  }

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
    const TensorView view{entry.at("permutation").get<std::vector<int>>(),
                          entry.at("file_dims").get<ir::Dims>()};
    if (!FitsDims(view, dims)) {
      return DataLoss(fmt::format("the layout of '{}' is damaged", name));
    }
    const ir::HostTensor value = ApplyView(ConvertTensor(given, *dtype), view);
    const std::string tensor = entry.at("tensor").get<std::string>();
    GraphProto* graph = model_.mutable_graph();
    for (const auto& operand : entry.at("operands")) {
      NodeProto* node = FindProducer(graph, operand.at("node").get<std::string>());
      if (node == nullptr) return DataLoss(fmt::format("the model has no operand for '{}'", name));
      HYPER_RETURN_IF_ERROR(SetOperand(node, operand.at("slot").get<int>(), tensor));
    }
    if (place == TensorPlaceName(TensorPlace::kInitializer)) {
      TensorProto* slot = FindInitializer(graph, tensor);
      if (slot == nullptr) {
        return DataLoss(fmt::format("the model has no initializer '{}'", tensor));
      }
      return SetData(slot, value.bytes());
    }
    if (place == TensorPlaceName(TensorPlace::kConstantNode)) {
      NodeProto* node = FindProducer(graph, tensor);
      if (node == nullptr) return DataLoss(fmt::format("the model has no constant '{}'", tensor));
      node->clear_attribute();
      AttributeProto* a = node->add_attribute();
      a->set_name("value");
      a->set_type(AttributeProto::TENSOR);
      a->mutable_t()->set_data_type(DTypeToOnnx(*dtype));
      *a->mutable_t()->mutable_dims() = {view.dims.begin(), view.dims.end()};
      return SetData(a->mutable_t(), value.bytes());
    }
    if (place == TensorPlaceName(TensorPlace::kIdentity)) identities_.insert(tensor);
    if (tensor != name) AddFoldedFrom(tensor, name, *dtype, view.dims);
    return SetData(AddInitializer(&model_, tensor, DTypeToOnnx(*dtype), view.dims), value.bytes());
  }

  // Says of a folded tensor what PyTorch's exporter would say: the file can be trained again.
  void AddFoldedFrom(const std::string& tensor, const std::string& parameter, ir::DType dtype,
                     const ir::Dims& dims) {
    onnx::ValueInfoProto* info = model_.mutable_graph()->add_value_info();
    info->set_name(tensor);
    auto* type = info->mutable_type()->mutable_tensor_type();
    type->set_elem_type(DTypeToOnnx(dtype));
    for (int64_t d : dims) type->mutable_shape()->add_dim()->set_dim_value(d);
    if (dims.empty()) type->mutable_shape();
    auto* entry = info->add_metadata_props();
    entry->set_key(kFoldedFromKey);
    entry->set_value(fmt::format("['{}']", parameter));
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

  onnx::ModelProto model_;
  const std::map<std::string, ir::HostTensor>& values_;
  std::string path_;
  int64_t external_above_;
  FileSystem* fs_;
  DataFile data_file_;
  bool external_ = false;  // large tensors go to data_file_
  std::set<std::string> identities_;
};

}  // namespace

Status ExportTrained(std::string_view stripped_model,
                     const std::map<std::string, ir::HostTensor>& values, const std::string& path,
                     const ExportOptions& options) {
  return Guard([&]() -> Status {
    onnx::ModelProto model;
    if (stripped_model.size() > static_cast<size_t>(kMaxMessage) ||
        !model.ParseFromArray(stripped_model.data(), static_cast<int>(stripped_model.size()))) {
      return DataLoss("the model without weights is damaged");
    }
    return Exporter(std::move(model), values, path, options).Run();
  });
}

}  // namespace hyper::onnx_frontend
