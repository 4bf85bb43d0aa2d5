// model.bind from the strategy to numbers: hyperc inspect, check, compile and hyperrun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "onnx/onnx_pb.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

void Declare(onnx::ValueInfoProto* info, const std::string& name, int32_t type,
             const std::vector<int>& dims) {
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape();
  for (const int extent : dims) tensor->mutable_shape()->add_dim()->set_dim_value(extent);
}

// y[2,3] = Reshape(x[2,3,1] * w, shape[2])
std::string Model() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  graph->set_name("g");
  Declare(graph->add_input(), "x", onnx::TensorProto::FLOAT, {2, 3, 1});
  Declare(graph->add_input(), "shape", onnx::TensorProto::INT64, {2});
  Declare(graph->add_output(), "y", onnx::TensorProto::FLOAT, {2, 3});
  onnx::TensorProto* w = graph->add_initializer();
  w->set_name("w");
  w->set_data_type(onnx::TensorProto::FLOAT);
  for (const int64_t extent : {1, 3, 1}) w->add_dims(extent);
  for (const float value : {1.0f, 2.0f, 3.0f}) w->add_float_data(value);
  auto add = [&](const std::string& op, const std::string& a, const std::string& b,
                 const std::string& y) {
    onnx::NodeProto* node = graph->add_node();
    node->set_op_type(op);
    node->add_input(a);
    node->add_input(b);
    node->add_output(y);
  };
  add("Mul", "x", "w", "h");
  add("Reshape", "h", "shape", "y");
  const std::string path = Scratch("bind.onnx");
  WriteBytes(path, model.SerializeAsString());
  return path;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string Written(const std::string& name, const std::string& text) {
  const std::string path = Scratch(name);
  WriteBytes(path, text);
  return path;
}

CliRun Compiled(const std::string& strategy, const std::string& bundle) {
  return Hyperc({"compile", Model(), "-s", strategy, "-o", Scratch(bundle)});
}

TEST(Bind, UnboundSaysWhatToBind) {
  const std::string strategy = Written("unbound.yaml", "version: 1\n");
  const CliRun run = Compiled(strategy, "unbound.bundle");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr("bind the input 'shape' to a value: model.bind: {shape: ...}"));
  const CliRun inspect = Hyperc({"inspect", Model()});
  EXPECT_EQ(inspect.exit_code, 0);
  EXPECT_THAT(inspect.out, HasSubstr("give it a value under model.bind"));
}

TEST(Bind, RunsForwardWithNumbersAndWithAFile) {
  WriteBytes(Scratch("data/x.npy"), Npy("<f4", "2, 3, 1", Bytes<float>({1, 1, 1, 2, 2, 2})));
  WriteBytes(Scratch("values/shape.npy"), Npy("<i4", "2,", Bytes<int32_t>({2, 3})));
  const std::string data = "data: {kind: npy, path: " + Scratch("data") + ", inputs: {x: x.npy}}\n";
  for (const std::string value : {"[2, 3]", "[2, -1]", "values/shape.npy"}) {
    const std::string strategy =
        Written("bound.yaml", "version: 1\nmodel: {bind: {shape: " + value + "}}\n" + data);
    const CliRun compile = Compiled(strategy, "bound.bundle");
    ASSERT_EQ(compile.exit_code, 0) << compile.err;
    const CliRun run = Hyperrun({Scratch("bound.bundle"), "--outputs", Scratch("out")});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const std::string y = ReadBytes(Scratch("out/y.npy"));
    EXPECT_THAT(y, HasSubstr("(2, 3)"));
    EXPECT_EQ(y.substr(y.size() - 24), Bytes<float>({1, 2, 3, 2, 4, 6})) << value;
  }
}

TEST(Bind, Trains) {
  WriteBytes(Scratch("train/x.npy"), Npy("<f4", "2, 3, 1", Bytes<float>({1, 1, 1, 2, 2, 2})));
  WriteBytes(Scratch("train/t.npy"), Npy("<f4", "2, 3", Bytes<float>({0, 0, 0, 0, 0, 0})));
  const std::string strategy = Written(
      "train.yaml",
      "version: 1\nmodel: {bind: {shape: [2, 3]}}\n"
      "train:\n  loss: {kind: mse, prediction: y, target: t}\n  optimizer: {kind: sgd, lr: 0.1}\n"
      "data: {kind: npy, path: " +
          Scratch("train") +
          ", inputs: {x: x.npy, t: t.npy}}\n"
          "run: {steps: 2, dir: " +
          Scratch("run") + "}\n");
  const CliRun compile = Compiled(strategy, "train.bundle");
  ASSERT_EQ(compile.exit_code, 0) << compile.err;
  const CliRun run = Hyperrun({Scratch("train.bundle")});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST(Bind, MistakesPointAtTheStrategy) {
  const std::string data = "data: {kind: synthetic, inputs: {x: normal, shape: normal}}\n";
  struct Mistake {
    std::string bind;
    std::string rest;
    std::string place;
    std::string message;
  };
  for (const Mistake& m : {
           Mistake{"{shap: [2, 3]}", "", ":2:16: error: ", "did you mean 'shape'?"},
           Mistake{"{shape: [2, 3, 1]}", "", ":2:16: error: ", "the input is i64[2]"},
           Mistake{"{shape: 0.5}", "", ":2:23: error: ", "is bound to f64[]"},
           Mistake{"{shape: no.npy}", "", ":2:23: error: ", "no.npy"},
           Mistake{"{w: 1}", "", ":2:19: error: ", "'w' has a value in the model"},
           Mistake{
               "{shape: [2, 3]}", data, ":3:52: error: ",
               "input 'shape' is bound to a value by model.bind, so data.inputs cannot feed it"},
       }) {
    const std::string strategy =
        Written("mistake.yaml", "version: 1\nmodel: {bind: " + m.bind + "}\n" + m.rest);
    for (const CliRun& run :
         {Compiled(strategy, "mistake.bundle"), Hyperc({"check", strategy, "--model", Model()})}) {
      EXPECT_EQ(run.exit_code, 1) << m.bind;
      EXPECT_THAT(run.err, AllOf(HasSubstr("mistake.yaml" + m.place), HasSubstr(m.message)))
          << m.bind;
    }
  }
}

}  // namespace
}  // namespace hyper::tools
