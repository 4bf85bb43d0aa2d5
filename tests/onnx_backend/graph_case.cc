#include "tests/onnx_backend/graph_case.h"

#include <functional>
#include <random>

#include <fmt/format.h>

#include "onnx/defs/parser.h"
#include "onnx/defs/schema.h"

namespace hyper::onnx_backend {

Result<NodeCase> CaseOf(const GraphCase& graph_case) {
  NodeCase c;
  c.name = graph_case.name;
  const std::string text = fmt::format("<ir_version: 9, opset_import: [\"\" : {}]>\n{}",
                                       graph_case.opset, graph_case.graph);
  const auto status = onnx::OnnxParser::Parse(c.model, text.c_str());
  if (!status.IsOK()) return InvalidArgument(status.ErrorMessage());
  if (c.model.graph().node_size() == 0) return InvalidArgument("no node in the graph");
  c.node = c.model.graph().node(c.model.graph().node_size() - 1);
  c.op = c.node.op_type();
  const auto* schema = onnx::OpSchemaRegistry::Schema(c.op, graph_case.opset, "");
  c.since = schema == nullptr ? 0 : schema->SinceVersion();
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(c.name) & 0xFFFF));
  std::uniform_real_distribution<float> draw(-1.2F, 1.2F);
  for (const onnx::ValueInfoProto& info : c.model.graph().input()) {
    onnx::TensorProto& tensor = c.inputs[info.name()];
    tensor.set_data_type(onnx::TensorProto::FLOAT);
    int64_t elements = 1;
    for (const auto& dim : info.type().tensor_type().shape().dim()) {
      tensor.add_dims(dim.dim_value());
      elements *= dim.dim_value();
    }
    for (int64_t i = 0; i < elements; ++i) tensor.add_float_data(draw(random));
  }
  c.outputs.resize(static_cast<size_t>(c.model.graph().output_size()));
  return c;
}

}  // namespace hyper::onnx_backend
