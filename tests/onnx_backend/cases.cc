#include "tests/onnx_backend/cases.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "frontend/onnx/tensor_data.h"
#include "onnx/defs/schema.h"

namespace hyper::onnx_backend {
namespace {

namespace fs = std::filesystem;

template <typename Message>
bool Parse(const fs::path& path, Message* message) {
  std::ifstream in(path, std::ios::binary);
  return in && message->ParseFromIstream(&in);
}

onnx::TensorProto ReadData(const fs::path& path, const onnx::ValueInfoProto& info) {
  onnx::TensorProto tensor;
  if (!info.type().has_tensor_type() || !Parse(path, &tensor)) return {};
  // Some cases store the bits of bfloat16 as uint16.
  if (info.type().tensor_type().elem_type() == onnx::TensorProto::BFLOAT16 &&
      tensor.data_type() == onnx::TensorProto::UINT16) {
    tensor.set_data_type(onnx::TensorProto::BFLOAT16);
  }
  return tensor;
}

// "test_x_expanded_ver18" -> "test_x"; the name itself when it has no such end.
std::string PlainName(const std::string& name) {
  const size_t at = name.rfind("_expanded");
  if (at == std::string::npos) return name;
  const std::string rest = name.substr(at + std::string("_expanded").size());
  const bool end = rest.empty() || rest.starts_with("_ver") || rest.starts_with("_function");
  return end ? name.substr(0, at) : name;
}

}  // namespace

std::vector<std::string> CaseNames(const std::string& root) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(root)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<NodeCase> ReadCase(const std::string& root, const std::string& name) {
  NodeCase node_case;
  node_case.name = name;
  const fs::path folder = fs::path(root) / name;
  node_case.folder = folder.string();
  onnx::ModelProto& model = node_case.model;
  if (!Parse(folder / "model.onnx", &model)) return DataLoss(folder.string() + ": no model");
  const fs::path data = folder / "test_data_set_0";
  const onnx::GraphProto& graph = model.graph();
  for (int i = 0; i < graph.input_size(); ++i) {
    onnx::TensorProto tensor = ReadData(data / fmt::format("input_{}.pb", i), graph.input(i));
    if (tensor.data_type() != 0) node_case.inputs[graph.input(i).name()] = std::move(tensor);
  }
  for (int i = 0; i < graph.output_size(); ++i) {
    node_case.outputs.push_back(ReadData(data / fmt::format("output_{}.pb", i), graph.output(i)));
  }
  // A case is about one node, which comes last where constants stand before it; its expanded twin
  // is about the op of that node.
  const std::string plain = PlainName(name);
  node_case.expanded = plain != name;
  onnx::ModelProto twin;
  const bool has_twin = node_case.expanded && Parse(fs::path(root) / plain / "model.onnx", &twin);
  const onnx::ModelProto& about = has_twin ? twin : model;
  if (about.graph().node_size() > 0) {
    const onnx::NodeProto& node = about.graph().node(about.graph().node_size() - 1);
    node_case.node = node;
    node_case.op = node.op_type();
    node_case.domain = node.domain() == "ai.onnx" ? "" : node.domain();
    for (const auto& import : about.opset_import()) {
      const std::string domain = import.domain() == "ai.onnx" ? "" : import.domain();
      if (domain != node_case.domain) continue;
      const auto* schema = onnx::OpSchemaRegistry::Schema(
          node_case.op, static_cast<int>(import.version()), node_case.domain);
      if (schema != nullptr) node_case.since = schema->SinceVersion();
    }
  }
  return node_case;
}

Result<ir::HostTensor> TensorOf(const onnx::TensorProto& tensor) {
  return onnx_frontend::ReadTensor(tensor, nullptr, nullptr);
}

std::string Difference(const ir::HostTensor& got, const ir::HostTensor& want, double absolute) {
  if (got.type() != want.type()) {
    return fmt::format("type {}, expected {}", got.type().ToString(), want.type().ToString());
  }
  for (int64_t i = 0; i < got.type().elements(); ++i) {
    if (!ir::IsFloat(got.type().dtype)) {
      if (got.ElementAsInt(i) == want.ElementAsInt(i)) continue;
      return fmt::format("element {} is {}, expected {}", i, got.ElementAsInt(i),
                         want.ElementAsInt(i));
    }
    const double a = got.ElementAsDouble(i);
    const double b = want.ElementAsDouble(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (std::abs(a - b) <= absolute + 1e-3 * std::abs(b)) continue;
    return fmt::format("element {} is {}, expected {}", i, a, b);
  }
  return {};
}

double AbsoluteTolerance(const NodeCase& node_case, const ir::HostTensor& want) {
  double absolute = 1e-7;
  if (node_case.name != "test_dft_inverse" && node_case.name != "test_dft_inverse_opset19") {
    return absolute;
  }
  for (int64_t i = 0; i < want.type().elements(); ++i) {
    absolute = std::max(absolute, 1e-8 * std::abs(want.ElementAsDouble(i)));
  }
  return absolute;
}

}  // namespace hyper::onnx_backend
