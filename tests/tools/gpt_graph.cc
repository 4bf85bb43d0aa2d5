#include "tests/tools/gpt_graph.h"

#include <cmath>
#include <filesystem>
#include <vector>

#include "onnx/onnx_pb.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using Dims = std::vector<int64_t>;
using Names = std::vector<std::string>;

class Graph {
 public:
  explicit Graph(std::string data_name) : data_name_(std::move(data_name)) {
    model_.set_ir_version(9);
    model_.add_opset_import()->set_version(20);
    model_.mutable_graph()->set_name("gpt");
  }

  std::string Weight(const std::string& name, const Dims& dims) {
    onnx::TensorProto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    int64_t bytes = sizeof(float);
    for (const int64_t d : dims) {
      tensor->add_dims(d);
      bytes *= d;
    }
    tensor->set_data_location(onnx::TensorProto::EXTERNAL);
    External(tensor, "location", data_name_);
    External(tensor, "offset", std::to_string(data_bytes_));
    External(tensor, "length", std::to_string(bytes));
    data_bytes_ += bytes;
    return name;
  }

  std::string Ints(const std::string& name, const Dims& values) {
    onnx::TensorProto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::INT64);
    tensor->add_dims(static_cast<int64_t>(values.size()));
    for (const int64_t v : values) tensor->add_int64_data(v);
    return name;
  }

  std::string Scalar(const std::string& name, float value) {
    onnx::TensorProto* tensor = model_.mutable_graph()->add_initializer();
    tensor->set_name(name);
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    tensor->add_float_data(value);
    return name;
  }

  onnx::NodeProto* Node(const std::string& op, const Names& inputs, const Names& outputs) {
    onnx::NodeProto* node = model_.mutable_graph()->add_node();
    node->set_op_type(op);
    node->set_name(outputs[0] + "/" + op);
    for (const std::string& name : inputs) node->add_input(name);
    for (const std::string& name : outputs) node->add_output(name);
    return node;
  }
  std::string Add1(const std::string& op, const Names& inputs, const std::string& output) {
    Node(op, inputs, {output});
    return output;
  }
  std::string Transpose(const std::string& x, const Dims& perm, const std::string& output) {
    SetInts(Node("Transpose", {x}, {output}), "perm", perm);
    return output;
  }
  static void SetInt(onnx::NodeProto* node, const std::string& name, int64_t value) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INT);
    attribute->set_i(value);
  }
  static void SetInts(onnx::NodeProto* node, const std::string& name, const Dims& values) {
    onnx::AttributeProto* attribute = node->add_attribute();
    attribute->set_name(name);
    attribute->set_type(onnx::AttributeProto::INTS);
    for (const int64_t v : values) attribute->add_ints(v);
  }
  static void SetType(onnx::ValueInfoProto* value, const std::string& name, int type,
                      const Dims& dims) {
    value->set_name(name);
    auto* tensor = value->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(type);
    for (const int64_t d : dims) tensor->mutable_shape()->add_dim()->set_dim_value(d);
  }

  onnx::ModelProto& model() { return model_; }
  int64_t data_bytes() const { return data_bytes_; }

 private:
  static void External(onnx::TensorProto* tensor, const std::string& key,
                       const std::string& value) {
    auto* entry = tensor->add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }

  onnx::ModelProto model_;
  std::string data_name_;
  int64_t data_bytes_ = 0;
};

std::string Norm(Graph& g, const std::string& x, const std::string& name, int64_t width) {
  const std::string scale = g.Weight(name + ".weight", {width});
  const std::string bias = g.Weight(name + ".bias", {width});
  return g.Add1("LayerNormalization", {x, scale, bias}, name + ".y");
}

std::string Linear(Graph& g, const std::string& x, const std::string& name, int64_t in,
                   int64_t out) {
  const std::string weight = g.Weight(name + ".weight", {in, out});
  const std::string bias = g.Weight(name + ".bias", {out});
  return g.Add1("Add", {g.Add1("MatMul", {x, weight}, name + ".product"), bias}, name + ".y");
}

std::string Attention(Graph& g, const std::string& x, const std::string& name,
                      const GptShape& shape) {
  const std::string qkv = Linear(g, x, name + ".qkv", shape.width, 3 * shape.width);
  Graph::SetInt(g.Node("Split", {qkv, "thirds"}, {name + ".q", name + ".k", name + ".v"}), "axis",
                -1);
  const auto heads = [&](const std::string& of, const Dims& perm) {
    return g.Transpose(g.Add1("Reshape", {of, "in_heads"}, of + ".split"), perm, of + ".heads");
  };
  const std::string q = heads(name + ".q", {0, 2, 1, 3});
  const std::string k = heads(name + ".k", {0, 2, 3, 1});
  const std::string v = heads(name + ".v", {0, 2, 1, 3});
  const std::string scaled =
      g.Add1("Mul", {g.Add1("MatMul", {q, k}, name + ".qk"), "scale"}, name + ".scaled");
  const std::string masked = g.Add1("Where", {"causal", scaled, "never"}, name + ".masked");
  const std::string weights = g.Add1("Softmax", {masked}, name + ".weights");
  const std::string mixed =
      g.Transpose(g.Add1("MatMul", {weights, v}, name + ".mixed"), {0, 2, 1, 3}, name + ".joined");
  return Linear(g, g.Add1("Reshape", {mixed, "in_rows"}, name + ".rows"), name + ".out",
                shape.width, shape.width);
}

}  // namespace

int64_t WriteGpt(const std::string& path, const GptShape& shape) {
  Graph g(std::filesystem::path(path).filename().string() + ".data");
  onnx::GraphProto* graph = g.model().mutable_graph();
  Graph::SetType(graph->add_input(), "ids", onnx::TensorProto::INT64, {shape.batch, shape.context});
  Graph::SetType(graph->add_output(), "logits", onnx::TensorProto::FLOAT,
                 {shape.batch, shape.context, shape.vocabulary});
  g.Ints("thirds", Dims(3, shape.width));
  g.Ints("in_heads", {shape.batch, shape.context, shape.heads, shape.width / shape.heads});
  g.Ints("in_rows", {shape.batch, shape.context, shape.width});
  g.Scalar("scale",
           static_cast<float>(1 / std::sqrt(static_cast<double>(shape.width / shape.heads))));
  g.Scalar("never", -1e9F);
  g.Ints("square", {shape.context, shape.context});
  onnx::NodeProto* ones = g.Node("ConstantOfShape", {"square"}, {"ones"});
  onnx::AttributeProto* one = ones->add_attribute();
  one->set_name("value");
  one->set_type(onnx::AttributeProto::TENSOR);
  one->mutable_t()->set_data_type(onnx::TensorProto::BOOL);
  one->mutable_t()->add_dims(1);
  one->mutable_t()->add_int32_data(1);
  Graph::SetInt(g.Node("Trilu", {"ones"}, {"causal"}), "upper", 0);

  const std::string table = g.Weight("embedding.weight", {shape.vocabulary, shape.width});
  const std::string places = g.Weight("position.weight", {shape.context, shape.width});
  std::string x = g.Add1("Add", {g.Add1("Gather", {table, "ids"}, "tokens"), places}, "embedded");
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string name = "h." + std::to_string(layer);
    const std::string mixed =
        Attention(g, Norm(g, x, name + ".ln_1", shape.width), name + ".attn", shape);
    x = g.Add1("Add", {x, mixed}, name + ".after_attn");
    const std::string wide = Linear(g, Norm(g, x, name + ".ln_2", shape.width), name + ".mlp.up",
                                    shape.width, 4 * shape.width);
    const std::string narrow = Linear(g, g.Add1("Gelu", {wide}, name + ".gelu"), name + ".mlp.down",
                                      4 * shape.width, shape.width);
    x = g.Add1("Add", {x, narrow}, name + ".y");
  }
  const std::string last = Norm(g, x, "ln_f", shape.width);
  g.Add1("MatMul", {last, g.Transpose(table, {1, 0}, "unembedding")}, "logits");
  WriteBytes(path, g.model().SerializeAsString());
  WriteBytes(path + ".data", "");
  std::filesystem::resize_file(path + ".data", static_cast<uintmax_t>(g.data_bytes()));
  return graph->node_size();
}

}  // namespace hyper::tools
