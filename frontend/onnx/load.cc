#include "frontend/onnx/load.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>

#include <limits>
#include <set>
#include <utility>

#include "base/file.h"
#include "frontend/onnx/functions.h"
#include "onnx/defs/schema.h"

namespace hyper::onnx_frontend {
namespace {

Result<onnx::ModelProto> ParseFile(const std::string& path, const LoadOptions& options) {
  HYPER_ASSIGN_OR_RETURN(const FileBytes file, MapFile(path));
  const int64_t size = static_cast<int64_t>(file.bytes.size());
  if (size == 0) return InvalidArgument(fmt::format("'{}' is empty", path));
  const int64_t limit = std::min<int64_t>(options.max_file_bytes, std::numeric_limits<int>::max());
  if (size > limit) {
    return InvalidArgument(fmt::format(
        "'{}' has {} bytes; a model file ends at {} (store the weights as external data)", path,
        size, limit));
  }
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(file.bytes.data()),
                                                static_cast<int>(size));
  stream.SetTotalBytesLimit(std::numeric_limits<int>::max());
  stream.SetRecursionLimit(100);
  onnx::ModelProto model;
  if (!model.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return InvalidArgument(
        fmt::format("'{}' is not an ONNX model or is damaged: parsing stopped at byte {} of {}",
                    path, stream.CurrentPosition(), size));
  }
  return model;
}

template <typename T, typename Values>
ir::HostTensor ListTensor(ir::DType dtype, const Values& values) {
  const std::vector<T> copy(values.begin(), values.end());
  return ir::HostTensor::FromVector(dtype, {static_cast<int64_t>(copy.size())}, copy);
}

// Initializers of the subgraphs of a node, nested ones included.
void CollectInnerTensors(const onnx::NodeProto& node, ExternalData* external, LoadedModel* model,
                         Diagnostics* diagnostics) {
  const auto collect = [&](const onnx::GraphProto& graph) {
    for (const onnx::TensorProto& proto : graph.initializer()) {
      model->has_external_data |= proto.data_location() == onnx::TensorProto::EXTERNAL;
      ir::HostTensor& value = model->inner_tensors[&proto];
      if (!DTypeFromOnnx(proto.data_type()).has_value()) continue;
      auto read = ReadTensor(proto, external, model->proto);
      if (read.ok()) {
        value = *read;
      } else {
        diagnostics->Error({NodeLocation(model->path, node)},
                           fmt::format("initializer '{}' of a subgraph: {}", proto.name(),
                                       read.status().message()));
      }
    }
    for (const onnx::NodeProto& inner : graph.node()) {
      CollectInnerTensors(inner, external, model, diagnostics);
    }
  };
  for (const onnx::AttributeProto& attribute : node.attribute()) {
    if (attribute.has_g()) collect(attribute.g());
    for (const onnx::GraphProto& graph : attribute.graphs()) collect(graph);
  }
}

void CollectTensors(ExternalData* external, LoadedModel* model, Diagnostics* diagnostics) {
  const onnx::GraphProto& graph = model->graph();
  std::set<std::string> inputs;
  for (const onnx::ValueInfoProto& input : graph.input()) inputs.insert(input.name());
  auto add = [&](NamedTensor tensor) {
    model->tensor_index.emplace(tensor.name, static_cast<int>(model->tensors.size()));
    model->tensors.push_back(std::move(tensor));
  };
  for (const onnx::TensorProto& proto : graph.initializer()) {
    model->has_external_data |= proto.data_location() == onnx::TensorProto::EXTERNAL;
    NamedTensor tensor{proto.name(),
                       {},
                       proto.data_type(),
                       TensorOrigin::kInitializer,
                       inputs.count(proto.name()) > 0,
                       RefusalOfElementType(proto.data_type())};
    if (DTypeFromOnnx(proto.data_type()).has_value()) {
      auto value = ReadTensor(proto, external, model->proto);
      if (!value.ok()) {
        diagnostics->Error({model->path}, fmt::format("initializer '{}': {}", proto.name(),
                                                      value.status().message()));
        continue;
      }
      tensor.value = *value;
    }
    add(std::move(tensor));
  }
  for (const onnx::NodeProto& node : graph.node()) {
    CollectInnerTensors(node, external, model, diagnostics);
    if (node.op_type() != "Constant" || !NormalDomain(node.domain()).empty()) continue;
    if (node.output_size() != 1) continue;
    auto value = ReadConstantNode(node, external, model->proto);
    NamedTensor tensor{node.output(0), {}, 0, TensorOrigin::kConstantNode, false};
    if (value.ok()) {
      tensor.value = *value;
      tensor.onnx_type = DTypeToOnnx(value->type().dtype);
    } else if (const auto why = RefusalOf(value.status().message()); why.has_value()) {
      tensor.refusal = *why;
    } else {
      diagnostics->Error({NodeLocation(model->path, node)}, value.status().message());
    }
    add(std::move(tensor));
  }
  for (const onnx::ValueInfoProto& input : graph.input()) {
    if (model->tensor_index.count(input.name()) == 0) model->inputs.push_back(&input);
  }
}

}  // namespace

int MaxOpset() {
  const auto& map = onnx::OpSchemaRegistry::DomainToVersionRange::Instance().Map();
  const auto it = map.find("");
  return it == map.end() ? kMinOpset : it->second.second;
}

const NamedTensor* LoadedModel::FindTensor(const std::string& name) const {
  const auto it = tensor_index.find(name);
  return it == tensor_index.end() ? nullptr : &tensors[static_cast<size_t>(it->second)];
}

std::string NodeTitle(const onnx::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() > 0 ? node.output(0) : std::string();
}

std::string NodeLocation(const std::string& path, const onnx::NodeProto& node) {
  return fmt::format("{}: node '{}' ({})", path, NodeTitle(node), node.op_type());
}

Result<ir::HostTensor> ReadConstantNode(const onnx::NodeProto& node, ExternalData* external,
                                        const std::shared_ptr<const void>& owner) {
  for (const onnx::AttributeProto& a : node.attribute()) {
    if (a.name() == "value") {
      if (!DTypeFromOnnx(a.t().data_type()).has_value()) {
        return RefusalStatus(RefusalOfElementType(a.t().data_type()),
                             "element type " + OnnxTypeName(a.t().data_type()));
      }
      return ReadTensor(a.t(), external, owner);
    }
    if (a.name() == "value_float") return ir::HostTensor::ScalarF32(a.f());
    if (a.name() == "value_int") return ir::HostTensor::ScalarI64(a.i());
    if (a.name() == "value_floats") return ListTensor<float>(ir::DType::kF32, a.floats());
    if (a.name() == "value_ints") return ListTensor<int64_t>(ir::DType::kI64, a.ints());
    if (a.name() == "value_string" || a.name() == "value_strings") {
      return RefusalStatus(Refusal::kStrings, a.name());
    }
    if (a.name() == "sparse_value") return RefusalStatus(Refusal::kLimit, a.name());
  }
  return InvalidArgument("has no value attribute");
}

Result<std::unique_ptr<LoadedModel>> LoadModel(const std::string& path, const LoadOptions& options,
                                               Diagnostics* diagnostics) {
  return Guard([&]() -> Result<std::unique_ptr<LoadedModel>> {
    auto model = ParseFile(path, options);
    if (!model.ok()) {
      diagnostics->Error({path}, model.status().message());
      return model.status();
    }
    return LoadModelProto(std::move(model).value(), path, DirName(path), diagnostics);
  });
}

// Some exporters (paddle2onnx) write -1 for an extent that they do not know: an unnamed symbolic
// dim.
static void ForgetUnknownExtents(onnx::ModelProto* model, const std::string& path,
                                 Diagnostics* diagnostics) {
  const auto forget = [&](onnx::ValueInfoProto* value) {
    if (!value->type().has_tensor_type() || !value->type().tensor_type().has_shape()) return;
    auto* shape = value->mutable_type()->mutable_tensor_type()->mutable_shape();
    for (auto& dim : *shape->mutable_dim()) {
      if (!dim.has_dim_value() || dim.dim_value() != -1) continue;
      dim.clear_dim_value();
      diagnostics->Note({path},
                        fmt::format("'{}' has an extent of -1: taken as unknown", value->name()));
    }
  };
  if (!model->has_graph()) return;
  for (auto& value : *model->mutable_graph()->mutable_input()) forget(&value);
  for (auto& value : *model->mutable_graph()->mutable_output()) forget(&value);
}

Result<std::unique_ptr<LoadedModel>> LoadModelProto(onnx::ModelProto model, const std::string& path,
                                                    const std::string& folder,
                                                    Diagnostics* diagnostics) {
  return Guard([&]() -> Result<std::unique_ptr<LoadedModel>> {
    const int errors = diagnostics->error_count();
    auto refuse = [&] { return diagnostics->error_count() > errors; };
    auto external = std::make_shared<ExternalData>(folder);
    ForgetUnknownExtents(&model, path, diagnostics);
    ValidateModel(model, path, external.get(), diagnostics);
    // Without versions or with broken functions the nodes cannot be judged.
    if (refuse() && (model.opset_import_size() == 0 || !model.has_graph())) {
      return diagnostics->ToStatus();
    }
    auto loaded = std::make_unique<LoadedModel>();
    loaded->path = path;
    auto proto = std::make_shared<onnx::ModelProto>();
    if (model.functions_size() > 0) {
      loaded->original = std::make_shared<const onnx::ModelProto>(model);
    }
    *proto = std::move(model);
    InlineLocalFunctions(proto.get(), &loaded->node_opset, path, diagnostics);
    ValidateNodes(*proto, loaded->node_opset, path, diagnostics);
    SortNodes(proto->mutable_graph(), &loaded->node_opset, path, diagnostics);
    if (refuse()) return diagnostics->ToStatus();
    loaded->proto = proto;
    if (loaded->original == nullptr) loaded->original = loaded->proto;
    CollectTensors(external.get(), loaded.get(), diagnostics);
    if (refuse()) return diagnostics->ToStatus();
    return loaded;
  });
}

}  // namespace hyper::onnx_frontend
