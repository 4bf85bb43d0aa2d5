// The nine `light` models of the onnx package: real graphs (IR 3, opset 9) whose weights the
// package replaces by ConstantOfShape to be small. Each gets random weights of the same names and
// shapes in their place, and trains five steps.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "onnx/onnx_pb.h"
#include "tests/e2e/harness.h"

namespace hyper::e2e {
namespace {

constexpr int kSteps = 5;

struct LightModel {
  std::string name;
  std::string logits;
  bool maps;  // logits are [1, 1000, 1, 1]
};

// Scales are 1, other vectors small and positive, matrices and filters uniform with the variance 2
// / fan-in.
void GiveWeights(onnx::ModelProto* model, int* count) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& tensor : model->graph().initializer()) {
    std::vector<int64_t>& shape = shapes[tensor.name()];
    shape.assign(tensor.int64_data().begin(), tensor.int64_data().end());
    const std::string& raw = tensor.raw_data();
    if (tensor.data_type() != onnx::TensorProto::INT64 || raw.empty()) continue;
    shape.resize(raw.size() / sizeof(int64_t));
    std::memcpy(shape.data(), raw.data(), raw.size());
  }
  std::map<std::string, bool> scales;
  for (const auto& node : model->graph().node()) {
    if (node.op_type() != "BatchNormalization") continue;
    scales[node.input(1)] = true;
    scales[node.input(4)] = true;
  }
  std::mt19937 random(3);
  onnx::GraphProto kept;
  for (auto& node : *model->mutable_graph()->mutable_node()) {
    if (node.op_type() != "ConstantOfShape" || shapes.count(node.input(0)) == 0) {
      *kept.add_node() = node;
      continue;
    }
    ++*count;
    const std::vector<int64_t>& shape = shapes[node.input(0)];
    auto* tensor = model->mutable_graph()->add_initializer();
    tensor->set_name(node.output(0));
    tensor->set_data_type(onnx::TensorProto::FLOAT);
    int64_t elements = 1;
    for (const int64_t extent : shape) {
      tensor->add_dims(extent);
      elements *= extent;
    }
    // Some of the other vectors are factors: none may be 0.
    std::vector<float> values(static_cast<size_t>(elements), 1.0F);
    if (scales.count(node.output(0)) == 0) {
      for (float& v : values) v = 0.1F + 0.1F * static_cast<float>(random()) / 4294967296.0F;
    }
    if (shape.size() > 1) {
      const auto fan_in = static_cast<double>(elements) / static_cast<double>(shape[0]);
      const auto bound = static_cast<float>(std::sqrt(6 / fan_in));
      for (float& v : values) v = bound * (static_cast<float>(random()) / 2147483648.0F - 1);
    }
    tensor->set_raw_data(values.data(), values.size() * sizeof(float));
  }
  model->mutable_graph()->mutable_node()->Swap(kept.mutable_node());
  model->set_ir_version(4);  // initializers that are no inputs
}

void Write(const std::string& path, const std::string& descr, const std::string& shape,
           const std::string& bytes) {
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, shape);
  header.resize((header.size() + 10) / 64 * 64 + 64 - 10 - 1, ' ');
  header += '\n';
  std::ofstream out(path, std::ios::binary);
  out << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(header.size() % 256)
      << static_cast<char>(header.size() / 256) << header << bytes;
}

class LightModels : public testing::TestWithParam<LightModel> {};

TEST_P(LightModels, TrainFiveSteps) {
  const LightModel& item = GetParam();
  const std::string folder = fmt::format("{}hyper_light_{}", testing::TempDir(), item.name);
  std::filesystem::create_directories(folder);
  onnx::ModelProto model;
  ASSERT_TRUE(model.ParseFromString(
      ReadFileOrDie(std::string(HYPER_LIGHT_MODELS) + "/light_" + item.name + ".onnx")));
  int weights = 0;
  GiveWeights(&model, &weights);
  ASSERT_GT(weights, 10);
  std::string input;
  for (const auto& value : model.graph().input()) {
    if (value.name().find("data_0") != std::string::npos) input = value.name();
  }
  {
    std::ofstream out(folder + "/m.onnx", std::ios::binary);
    ASSERT_TRUE(model.SerializeToOstream(&out));
  }
  model.Clear();
  std::mt19937 random(4);
  std::vector<float> pixels(static_cast<size_t>(kSteps) * 3 * 224 * 224);
  for (float& v : pixels) v = static_cast<float>(random() % 2001) / 1000 - 1;
  Write(folder + "/x.npy", "<f4", fmt::format("({}, 3, 224, 224)", kSteps),
        std::string(reinterpret_cast<const char*>(pixels.data()), pixels.size() * sizeof(float)));
  std::vector<int64_t> labels(kSteps, 7);
  Write(folder + "/labels.npy", "<i8",
        item.maps ? fmt::format("({}, 1, 1)", kSteps) : fmt::format("({},)", kSteps),
        std::string(reinterpret_cast<const char*>(labels.data()), labels.size() * sizeof(int64_t)));
  const std::string strategy = fmt::format(R"(version: 1
train:
  loss: {{kind: cross_entropy, logits: '{}', labels: labels, class_axis: 1}}
  optimizer: {{kind: sgd, lr: 1e-3}}
  clip_norm: 1.0
  precision: fp32
  micro_batches: 1
data:
  kind: npy
  path: {}
  inputs: {{'{}': {{file: x.npy}}, labels: {{file: labels.npy}}}}
run: {{steps: {}}}
)",
                                           item.logits, folder, input, kSteps);
  const auto bundle = CompileToBundle("light_" + item.name, folder + "/m.onnx", strategy);
  ASSERT_TRUE(bundle.ok()) << bundle.status().ToString();
  const auto result = Train(*bundle, {.steps = kSteps, .threads = 2});
  // The first step's, before random weights have run into a corner.
  const auto first = Train(*bundle, {.steps = 1, .threads = 2});
  std::filesystem::remove_all(*bundle);
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  ASSERT_EQ(result->losses.size(), static_cast<size_t>(kSteps));
  for (const double loss : result->losses) EXPECT_TRUE(std::isfinite(loss)) << loss;
  EXPECT_NE(result->losses.front(), result->losses.back());
  for (const double norm : result->grad_norms) EXPECT_GT(norm, 0);
  onnx_frontend::ImportOptions options;
  options.training = true;
  options.losses = {{.kind = ir::LossKind::kCrossEntropy,
                     .prediction = item.logits,
                     .target = "labels",
                     .class_axis = 1}};
  ExpectEveryWeightTrains(folder + "/m.onnx", options, *first);
  std::filesystem::remove_all(folder);
  Figure("light_models", 1);
}

void PrintTo(const LightModel& model, std::ostream* out) { *out << model.name; }

INSTANTIATE_TEST_SUITE_P(OnnxPackage, LightModels,
                         testing::Values(LightModel{"bvlc_alexnet", "r24", false},
                                         LightModel{"densenet121", "fc6_1", true},
                                         LightModel{"inception_v1", "r143", false},
                                         LightModel{"inception_v2", "r507", false},
                                         LightModel{"resnet50", "r174", false},
                                         LightModel{"shufflenet", "r201", false},
                                         LightModel{"squeezenet", "r65", true},
                                         LightModel{"vgg19", "r46", false},
                                         LightModel{"zfnet512", "r20", false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace hyper::e2e
