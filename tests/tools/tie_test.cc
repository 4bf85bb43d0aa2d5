// model.tie from the strategy to the exported file: hyperc inspect, check, compile and hyperrun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <sstream>

#include <nlohmann/json.hpp>

#include "onnx/onnx_pb.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

constexpr int kTokens = 5, kWidth = 3, kBatch = 4;

std::vector<float> Embedding() {
  std::vector<float> values;
  for (int i = 0; i < kTokens * kWidth; ++i) {
    values.push_back(0.1F * static_cast<float>(i * 7 % 11) - 0.4F);
  }
  return values;
}

std::vector<float> Transposed(const std::vector<float>& values, int rows, int columns) {
  std::vector<float> out;
  for (int c = 0; c < columns; ++c) {
    for (int r = 0; r < rows; ++r) out.push_back(values[static_cast<size_t>(r * columns + c)]);
  }
  return out;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

void Declare(onnx::ValueInfoProto* info, const std::string& name, int32_t type,
             const std::vector<int>& dims) {
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  for (const int extent : dims) tensor->mutable_shape()->add_dim()->set_dim_value(extent);
}

// logits[4,5] = Gather(e.weight, ids) * head, head[3,5] the embedding transposed: a tensor of its
// own, as constant folding leaves it, or a Transpose node.
std::string WriteModel(bool untied) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  graph->set_name("g");
  Declare(graph->add_input(), "ids", onnx::TensorProto::INT64, {kBatch});
  Declare(graph->add_output(), "logits", onnx::TensorProto::FLOAT, {kBatch, kTokens});
  auto weight = [&](const std::string& name, std::vector<int> dims, const std::string& bytes) {
    onnx::TensorProto* w = graph->add_initializer();
    w->set_name(name);
    w->set_data_type(onnx::TensorProto::FLOAT);
    for (const int extent : dims) w->add_dims(extent);
    w->set_raw_data(bytes);
  };
  auto node = [&](const std::string& op, std::vector<std::string> inputs, const std::string& y) {
    onnx::NodeProto* n = graph->add_node();
    n->set_op_type(op);
    for (const std::string& input : inputs) n->add_input(input);
    n->add_output(y);
  };
  weight("e.weight", {kTokens, kWidth}, Bytes(Embedding()));
  node("Gather", {"e.weight", "ids"}, "h");
  if (untied) {
    weight("onnx::MatMul_163", {kWidth, kTokens}, Bytes(Transposed(Embedding(), kTokens, kWidth)));
  } else {
    node("Transpose", {"e.weight"}, "onnx::MatMul_163");
  }
  node("MatMul", {"h", "onnx::MatMul_163"}, "logits");
  const std::string path = Scratch(untied ? "untied.onnx" : "program.onnx");
  WriteBytes(path, model.SerializeAsString());
  return path;
}

// With `tie` as a line of the strategy's model block.
std::string WriteStrategy(const std::string& name, const std::string& tie) {
  WriteBytes(Scratch("data/ids.npy"), Npy("<i8", "4,", Bytes<int64_t>({0, 3, 1, 4})));
  WriteBytes(Scratch("data/labels.npy"), Npy("<i8", "4,", Bytes<int64_t>({3, 1, 4, 0})));
  const std::string path = Scratch(name + ".yaml");
  WriteBytes(path, "version: 1\nmodel: {" + tie +
                       "}\ntrain:\n"
                       "  loss: {kind: cross_entropy, logits: logits, labels: labels}\n"
                       "  optimizer: {kind: momentum, lr: 0.5}\n  precision: fp64\n"
                       "data: {kind: npy, path: " +
                       Scratch("data") +
                       ", shuffle: false, inputs: {ids: ids.npy, labels: labels.npy}}\n"
                       "run: {steps: 5, log_every: 1, dir: " +
                       Scratch(name + "_run") + "}\n");
  return path;
}

struct Trained {
  std::vector<double> losses;
  onnx::ModelProto exported;
};

Trained Train(const std::string& name, const std::string& model, const std::string& tie) {
  const std::string bundle = Scratch(name + ".bundle");
  const CliRun compile = Hyperc({"compile", model, "-s", WriteStrategy(name, tie), "-o", bundle});
  EXPECT_EQ(compile.exit_code, 0) << compile.err;
  const std::string onnx = Scratch(name + "_out.onnx");
  const CliRun run = Hyperrun({bundle, "--export", onnx});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  Trained trained;
  std::istringstream lines(ReadBytes(Scratch(name + "_run") + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    if (record.contains("loss")) trained.losses.push_back(record["loss"]);
  }
  EXPECT_TRUE(trained.exported.ParseFromString(ReadBytes(onnx)));
  return trained;
}

std::vector<float> Initializer(const onnx::ModelProto& model, const std::string& name) {
  for (const onnx::TensorProto& t : model.graph().initializer()) {
    if (t.name() != name) continue;
    std::vector<float> values(t.raw_data().size() / sizeof(float));
    std::memcpy(values.data(), t.raw_data().data(), t.raw_data().size());
    return values;
  }
  ADD_FAILURE() << name;
  return {};
}

TEST(Tie, ASuggestedLineTrainsWhatTheProgramWouldHave) {
  const CliRun inspect = Hyperc({"inspect", WriteModel(true), "--format", "json"});
  ASSERT_EQ(inspect.exit_code, 0) << inspect.err;
  std::string line;
  const Json report = Json::parse(inspect.out);
  for (const Json& note : report["notes"]) {
    const std::string text = note;
    const size_t at = text.find("model: {tie:");
    if (at != std::string::npos) line = text.substr(at + 8, text.size() - at - 9);
  }
  ASSERT_EQ(line, "tie: [[e.weight, \"onnx::MatMul_163\"]]");
  const Trained tied = Train("tied", WriteModel(true), line);
  const Trained program = Train("program", WriteModel(false), "");
  const Trained apart = Train("apart", WriteModel(true), "");
  ASSERT_EQ(tied.losses.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(tied.losses[i], program.losses[i], 1e-12);
  EXPECT_GT(std::abs(apart.losses[4] - program.losses[4]), 1e-3);
  const std::vector<float> embedding = Initializer(tied.exported, "e.weight");
  EXPECT_NE(embedding, Embedding());
  EXPECT_EQ(embedding, Initializer(program.exported, "e.weight"));
  EXPECT_EQ(Initializer(tied.exported, "onnx::MatMul_163"), Transposed(embedding, kTokens, kWidth));
  // The checkpoint holds one tensor.
  std::string weights;
  for (const std::string& file : FilesBelow(Scratch("tied_run"))) {
    if (file.ends_with(".safetensors")) weights += ReadBytes(Scratch("tied_run") + "/" + file);
  }
  EXPECT_THAT(weights, AllOf(HasSubstr("e.weight"), Not(HasSubstr("MatMul_163"))));
}

TEST(Tie, InspectAppliesAStrategy) {
  const std::string strategy = WriteStrategy("inspected", "tie: [[e.weight, onnx::MatMul_163]]");
  const CliRun text = Hyperc({"inspect", WriteModel(true), "-s", strategy});
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out,
              AllOf(HasSubstr("15 elements trained"), HasSubstr("tied: onnx::MatMul_163")));
  const CliRun explain =
      Hyperc({"compile", WriteModel(true), "-s", strategy, "-o", Scratch("e.bundle"), "--explain"});
  EXPECT_EQ(explain.exit_code, 0) << explain.err;
  EXPECT_THAT(explain.err, HasSubstr("tied: onnx::MatMul_163 (transposed)"));
}

TEST(Tie, MistakesPointAtTheStrategy) {
  struct Mistake {
    std::string tie;
    std::string place;
    std::string message;
  };
  for (const Mistake& m : {
           Mistake{"tie: [[e.weight, onnx::MatMul_16]]",
                   ":2:26: error: ", "did you mean 'onnx::MatMul_163'?"},
           Mistake{"tie: [e.weight]", ":2:15: error: ", "write one list per group"},
       }) {
    const std::string strategy = WriteStrategy("mistake", m.tie);
    for (const CliRun& run :
         {Hyperc({"compile", WriteModel(true), "-s", strategy, "-o", Scratch("m.bundle")}),
          Hyperc({"check", strategy, "--model", WriteModel(true)}),
          Hyperc({"inspect", WriteModel(true), "-s", strategy})}) {
      EXPECT_EQ(run.exit_code, 1) << m.tie;
      EXPECT_THAT(run.err, AllOf(HasSubstr("mistake.yaml" + m.place), HasSubstr(m.message)));
    }
  }
}

}  // namespace
}  // namespace hyper::tools
