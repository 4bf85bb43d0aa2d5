// What a strategy says about losses, batches and replicas, from the file to the trained numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "onnx/onnx_pb.h"
#include "tests/tools/cli_runner.h"

namespace hyper::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

constexpr int kN = 2, kIn = 2, kC = 3;

template <typename T>
void WriteNpy(const std::string& path, const std::string& dtype, const std::string& shape,
              const std::vector<T>& values) {
  std::string data(values.size() * sizeof(T), '\0');
  std::memcpy(data.data(), values.data(), data.size());
  WriteBytes(path, Npy(dtype, shape, data));
}

void SetShape(onnx::ValueInfoProto* info, const std::string& name, const std::vector<int>& dims,
              int32_t type = onnx::TensorProto::FLOAT) {
  info->set_name(name);
  auto* tensor = info->mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  tensor->mutable_shape()->add_dim()->set_dim_param("batch");
  for (const int extent : dims) tensor->mutable_shape()->add_dim()->set_dim_value(extent);
}

std::vector<int> Spatial(int h, int w) { return h > 0 ? std::vector{h, w} : std::vector{w}; }
std::vector<int> Behind(int channels, std::vector<int> spatial) {
  spatial.insert(spatial.begin(), channels);
  return spatial;
}
std::string ShapeText(const std::vector<int>& dims) {
  return fmt::format("{}, {}", kN, fmt::join(dims, ", "));
}

// x [batch, 2, h, w] -> logits [batch, 3, h, w] by a 1x1 convolution without bias; without h when
// it is 0. `declared`: the labels y are an input of the graph.
std::vector<float> Weights() { return {0.3F, -0.2F, 0.1F, 0.4F, -0.5F, 0.25F}; }
std::string SegmentationModel(int h, int w, bool declared) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  graph->set_name("segmentation");
  SetShape(graph->add_input(), "x", Behind(kIn, Spatial(h, w)));
  if (declared) SetShape(graph->add_input(), "y", Spatial(h, w), onnx::TensorProto::INT64);
  SetShape(graph->add_output(), "logits", Behind(kC, Spatial(h, w)));
  onnx::TensorProto* weight = graph->add_initializer();
  weight->set_name("weight");
  weight->set_data_type(onnx::TensorProto::FLOAT);
  weight->add_dims(kC);
  weight->add_dims(kIn);
  for (size_t i = 0; i < Spatial(h, w).size(); ++i) weight->add_dims(1);
  for (const float value : Weights()) weight->add_float_data(value);
  onnx::NodeProto* node = graph->add_node();
  node->set_op_type("Conv");
  node->set_name("head");
  node->add_input("x");
  node->add_input("weight");
  node->add_output("logits");
  return model.SerializeAsString();
}

struct Job {
  std::string model, strategy, bundle;
};

// Model, data and strategy in a folder of their own; `loss` and `more` are YAML.
Job MakeJob(const std::string& name, int h, int w, const std::string& train,
            const std::string& more = "", bool declared = false) {
  const std::string folder = Scratch(name);
  WriteBytes(folder + "/model.onnx", SegmentationModel(h, w, declared));
  const int pixels = std::max(h, 1) * w;
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int i = 0; i < kN * kIn * pixels; ++i) {
    x.push_back(0.25F * static_cast<float>(i * 7 % 11) - 1);
  }
  for (int i = 0; i < kN * pixels; ++i) y.push_back(i * 5 % kC);
  WriteNpy(folder + "/x.npy", "<f4", ShapeText(Behind(kIn, Spatial(h, w))), x);
  WriteNpy(folder + "/y.npy", "<i8", ShapeText(Spatial(h, w)), y);
  WriteBytes(
      folder + "/s.yaml",
      fmt::format("version: 1\nmodel: {{dims: {{batch: {}}}}}\n{}data: {{kind: npy, path: {}, "
                  "shuffle: false, inputs: {{x: x.npy{}}}}}\nrun: {{dir: {}/run, steps: 3}}\n{}",
                  kN, train, folder, train.empty() ? "" : ", y: y.npy", folder, more));
  return {folder + "/model.onnx", folder + "/s.yaml", folder + "/job.bundle"};
}

std::string Train(const std::string& loss) {
  return "train: {loss: " + loss + ", optimizer: {kind: sgd, lr: 0.5}, precision: fp64}\n";
}

CliRun Compile(const Job& job) {
  return Hyperc({"compile", job.model, "-s", job.strategy, "-o", job.bundle});
}

std::vector<double> LossesOf(const std::string& folder) {
  std::vector<double> losses;
  std::istringstream lines(ReadBytes(folder + "/run/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    if (record.contains("loss")) losses.push_back(record["loss"]);
  }
  return losses;
}

// The same training by plain loops: mean over all pixels, as PyTorch's CrossEntropyLoss.
std::vector<double> ExpectedLosses(int h, int w, int steps) {
  const int pixels = h * w;
  std::vector<double> weight;
  for (const float value : Weights()) weight.push_back(value);
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    double loss = 0;
    std::array<double, kC * kIn> gradient{};
    for (int n = 0; n < kN; ++n) {
      for (int p = 0; p < pixels; ++p) {
        std::array<double, kIn> x{};
        for (int c = 0; c < kIn; ++c) {
          const int i = (n * kIn + c) * pixels + p;
          x[static_cast<size_t>(c)] = 0.25 * (i * 7 % 11) - 1;
        }
        std::array<double, kC> z{};
        double sum = 0;
        for (size_t k = 0; k < kC; ++k) {
          for (size_t c = 0; c < kIn; ++c) z[k] += weight[k * kIn + c] * x[c];
          sum += std::exp(z[k]);
        }
        const auto label = static_cast<size_t>((n * pixels + p) * 5 % kC);
        loss += std::log(sum) - z[label];
        for (size_t k = 0; k < kC; ++k) {
          const double d = std::exp(z[k]) / sum - (k == label ? 1 : 0);
          for (size_t c = 0; c < kIn; ++c) gradient[k * kIn + c] += d * x[c];
        }
      }
    }
    losses.push_back(loss / (kN * pixels));
    for (size_t i = 0; i < weight.size(); ++i) weight[i] -= 0.5 * gradient[i] / (kN * pixels);
  }
  return losses;
}

TEST(ClassAxis, SegmentationTrainsOverTheAxisOfTheKey) {
  // Square with as many rows as classes: every axis would fit the labels' shape.
  for (const auto& [h, w] : {std::pair(4, 5), std::pair(3, 3)}) {
    for (const char* axis : {"1", "-3"}) {
      const std::string name = fmt::format("seg{}{}{}", h, w, axis);
      const Job job = MakeJob(name, h, w,
                              Train(fmt::format("{{kind: cross_entropy, logits: logits, labels: y, "
                                                "class_axis: {}}}",
                                                axis)));
      const CliRun compiled = Compile(job);
      ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
      const CliRun run = Hyperrun({job.bundle, "--threads", "1"});
      ASSERT_EQ(run.exit_code, 0) << run.err;
      const std::vector<double> want = ExpectedLosses(h, w, 3);
      const std::vector<double> got = LossesOf(Scratch(name));
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i] / want[i], 1, 1e-8) << i;
    }
  }
}

TEST(ClassAxis, FourAxesNeedTheKey) {
  const Job job =
      MakeJob("seg_none", 3, 3, Train("{kind: cross_entropy, logits: logits, labels: y}"));
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"compile", job.model, "-s", job.strategy, "-o", job.bundle},
        std::vector<std::string>{"check", job.strategy, "--model", job.model}}) {
    const CliRun run = Hyperc(command);
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr("s.yaml:3:"), HasSubstr("which axis of the logits"),
                               HasSubstr("Set class_axis"),
                               HasSubstr("1: 3 classes, labels of shape [2,3,3]"),
                               HasSubstr("3: 3 classes")));
  }
  const Job wrong = MakeJob(
      "seg_wrong", 3, 3, Train("{kind: cross_entropy, logits: logits, labels: y, class_axis: 4}"));
  EXPECT_THAT(Compile(wrong).err, AllOf(HasSubstr("class_axis is 4"), HasSubstr("-4 to 3")));
}

TEST(ClassAxis, LabelsOfAnotherShapeNameTheAxisThatWouldFit) {
  const Job job = MakeJob("seg_last", 4, 5,
                          Train("{kind: cross_entropy, logits: logits, labels: y, class_axis: 3}"));
  ASSERT_EQ(Compile(job).exit_code, 0);
  const CliRun run = Hyperrun({job.bundle, "--threads", "1"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("the loss takes axis 3 of its logits [2,3,4,5]"),
                             HasSubstr("with class_axis: 1 these labels would fit")));
}

TEST(ClassAxis, TheDeclaredShapeOfLabelsDecides) {
  const Job job = MakeJob("seg_declared", 4, 5,
                          Train("{kind: cross_entropy, logits: logits, labels: y}"), "", true);
  const CliRun compiled = Compile(job);
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  ASSERT_EQ(Hyperrun({job.bundle, "--threads", "1"}).exit_code, 0);
  EXPECT_NEAR(LossesOf(Scratch("seg_declared"))[2] / ExpectedLosses(4, 5, 3)[2], 1, 1e-8);
}

// Three axes are [N,T,C] as a rule; what is meant otherwise is found out, or warned of.
TEST(ClassAxis, ThreeAxes) {
  const std::string loss = Train("{kind: cross_entropy, logits: logits, labels: y}");
  const Job job = MakeJob("line", 0, 5, loss);
  const CliRun compiled = Compile(job);
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  EXPECT_THAT(compiled.err, Not(HasSubstr("class_axis")));
  EXPECT_THAT(Hyperrun({job.bundle, "--threads", "1"}).err,
              HasSubstr("with class_axis: 1 these labels would fit"));
  const CliRun equal = Compile(MakeJob("line_equal", 0, 3, loss));
  EXPECT_EQ(equal.exit_code, 0);
  EXPECT_THAT(equal.err, AllOf(HasSubstr("s.yaml:3:"),
                               HasSubstr("warning: the loss takes the last axis of the logits"),
                               HasSubstr("class_axis: 2, or class_axis: 1")));
}

TEST(BinaryTargets, AreProbabilities) {
  const Job job = MakeJob("bce", 2, 2, Train("{kind: bce_with_logits, logits: logits, labels: y}"));
  const std::string folder = Scratch("bce");
  ASSERT_EQ(Compile(job).exit_code, 0);
  const std::string shape = fmt::format("{}, {}, 2, 2", kN, kC);
  std::vector<float> targets(kN * kC * 4, 0.5F);
  targets[3] = 0;
  targets[4] = 1;
  WriteNpy(folder + "/y.npy", "<f4", shape, targets);
  CliRun run = Hyperrun({job.bundle, "--threads", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (const float bad : {1.5F, -0.25F, NAN}) {
    targets[14] = bad;
    WriteNpy(folder + "/y.npy", "<f4", shape, targets);
    run = Hyperrun({job.bundle, "--threads", "1", "--overwrite"});
    EXPECT_EQ(run.exit_code, 1);
    EXPECT_THAT(run.err, AllOf(HasSubstr("y.npy"), HasSubstr(fmt::format("target {}", bad)),
                               HasSubstr("sample 1 (position 2"), HasSubstr("accepts 0 to 1")));
  }
  // What counts is what the model gets: bytes scaled to [0, 1].
  WriteNpy(folder + "/y.npy", "|u1", shape, std::vector<uint8_t>(kN * kC * 4, 255));
  run = Hyperrun({job.bundle, "--threads", "1", "--overwrite"});
  EXPECT_THAT(run.err, HasSubstr("target 255"));
  run = Hyperrun({job.bundle, "--threads", "1", "--overwrite", "--set",
                  "data.inputs.y.scale=0.00392156862745098"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
}

TEST(Replicas, FewerThanPlannedAreRefused) {
  const Job job =
      MakeJob("min", 2, 2, Train("{kind: cross_entropy, logits: logits, labels: y, class_axis: 1}"),
              "data_parallel: {min_replicas: 2}\n");
  ASSERT_EQ(Compile(job).exit_code, 0);
  const CliRun run = Hyperrun({job.bundle, "--threads", "1"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err,
              AllOf(HasSubstr("the launch has 1 replica (1 ranks)"),
                    HasSubstr("compiled for 2 or more"), HasSubstr("start 2 ranks or more")));
  const CliRun two = HyperrunWhile(2, {job.bundle, "--threads", "1", "--steps", "1"},
                                   [](const std::vector<int>&) {});
  EXPECT_EQ(two.exit_code, 0) << two.err;
}

TEST(GlobalBatch, ThatNoLaunchCanSatisfyIsRefusedAtOnce) {
  const auto with = [](const std::string& name, int batch, const std::string& more = "") {
    return MakeJob(name, 2, 2,
                   fmt::format("train: {{loss: {{kind: cross_entropy, logits: logits, labels: y, "
                               "class_axis: 1}}, optimizer: {{kind: sgd, lr: 0.5}}, global_batch: "
                               "{}}}\n",
                               batch),
                   more);
  };
  const Job odd = with("odd", 7);
  EXPECT_THAT(Hyperc({"check", odd.strategy, "--model", odd.model}).err,
              AllOf(HasSubstr("s.yaml:3:"),
                    HasSubstr("train.global_batch 7 is no multiple of the "
                              "micro-batch of 2 samples"),
                    HasSubstr("nearest that work: 6, 8")));
  const Job few = with("few", 4, "data_parallel: {min_replicas: 3}\n");
  EXPECT_THAT(Compile(few).err,
              AllOf(HasSubstr("take at least 6"), HasSubstr("nearest that work: 6")));
  // Two samples in all: it runs, and says what that means.
  const Job large = with("large", 8);
  ASSERT_EQ(Compile(large).exit_code, 0);
  const CliRun run = Hyperrun({large.bundle, "--threads", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("one step takes 8 samples, the training data has 2"));
}

TEST(ForwardOnly, WritesTheOutputs) {
  // Three samples in micro-batches of two: the last one is filled up.
  const Job job = MakeJob("forward", 2, 3, "");
  const std::string folder = Scratch("forward");
  std::vector<float> x;
  for (int i = 0; i < 3 * kIn * 6; ++i) x.push_back(0.5F * static_cast<float>(i % 5) - 1);
  WriteNpy(folder + "/x.npy", "<f4", "3, 2, 2, 3", x);
  const CliRun compiled = Compile(job);
  ASSERT_EQ(compiled.exit_code, 0) << compiled.err;
  const CliRun run = Hyperrun({job.bundle, "--threads", "1", "--outputs", folder + "/out"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("out/logits.npy f32[3,3,2,3]"));
  const std::string npy = ReadBytes(folder + "/out/logits.npy");
  EXPECT_THAT(npy.substr(0, 128), AllOf(HasSubstr("'<f4'"), HasSubstr("(3, 3, 2, 3)")));
  const size_t bytes = 3 * kC * 6 * sizeof(float);
  ASSERT_GT(npy.size(), bytes);
  EXPECT_EQ((npy.size() - bytes) % 64, 0u);
  std::vector<float> got(3 * kC * 6);
  std::memcpy(got.data(), npy.data() + npy.size() - bytes, bytes);
  for (int n = 0; n < 3; ++n) {
    for (int k = 0; k < kC; ++k) {
      for (int p = 0; p < 6; ++p) {
        double want = 0;
        for (int c = 0; c < kIn; ++c) {
          want += static_cast<double>(Weights()[static_cast<size_t>(k * kIn + c)]) *
                  static_cast<double>(x[static_cast<size_t>((n * kIn + c) * 6 + p)]);
        }
        EXPECT_NEAR(got[static_cast<size_t>((n * kC + k) * 6 + p)], want, 1e-6);
      }
    }
  }
  EXPECT_EQ(std::filesystem::exists(folder + "/run"), false);
}

TEST(ForwardOnly, TrainingAndEvaluationSayWhatWorks) {
  const Job job = MakeJob("forward2", 2, 3, "");
  ASSERT_EQ(Compile(job).exit_code, 0);
  CliRun run = Hyperrun({job.bundle, "--threads", "1"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("without a 'train' block"), HasSubstr("--outputs DIR")));
  WriteBytes(job.strategy, Replaced(ReadBytes(job.strategy), "inputs: {x: x.npy}",
                                    "inputs: {x: x.npy}, eval: {}"));
  ASSERT_EQ(Compile(job).exit_code, 0);
  run = Hyperrun({job.bundle, "--threads", "1", "--eval"});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, AllOf(HasSubstr("no loss to evaluate"), HasSubstr("--outputs DIR")));
  EXPECT_EQ(Hyperrun({job.bundle, "--eval", "--outputs", "o"}).exit_code, 2);
}

TEST(Memory, MoreThanThisMachineHasIsAWarning) {
  const Job job = MakeJob("huge", 2, 2,
                          Train("{kind: cross_entropy, logits: logits, labels: y, class_axis: 1}"));
  WriteBytes(job.strategy, Replaced(ReadBytes(job.strategy), "batch: 2", "batch: 40000000000"));
  const CliRun run = Compile(job);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("warning: one rank needs"),
                             HasSubstr("TiB, this machine has"), HasSubstr("of memory")));
}

TEST(Show, JsonIsThePlanAndTheIrIsText) {
  const std::string& bundle = RecipeBundle("bytes_gpt");
  const Json plan = Json::parse(Hyperc({"show", bundle, "--format", "json"}).out);
  EXPECT_EQ(plan, Json::parse(ReadBytes(bundle + "/plan.json")));
  for (const char* key :
       {"format_version", "memory", "kernels", "fused_groups", "generated", "buckets", "unfused"}) {
    EXPECT_TRUE(plan.contains(key)) << key;
  }
  const CliRun ir = Hyperc({"show", bundle, "--ir", "--format", "json"});
  EXPECT_EQ(ir.exit_code, 2);
  EXPECT_EQ(ir.out, "");
  // Every kernel says what it is.
  for (const Json& kernel : plan["kernels"]) EXPECT_FALSE(kernel["sources"].empty()) << kernel;
}

TEST(Explain, CountsPairsByReason) {
  const CliRun run =
      Hyperc({"compile", Recipe("fashion_mnist/model.onnx"), "-s",
              Recipe("fashion_mnist/train.yaml"), "-o", Scratch("explained.bundle"), "--explain"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::istringstream lines(run.err);
  int count = 0;
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_TRUE(seen.insert(line).second) << line;
  }
  EXPECT_LT(count, 70);
  EXPECT_THAT(run.err, AllOf(HasSubstr("not fused, different shapes ("), HasSubstr(" times)")));
}

}  // namespace
}  // namespace hyper::tools
