// What is trained in files that do not say what is a parameter, and what the user is told.
#include <cmath>
#include <sstream>

#include "frontend/onnx/inspect.h"
#include "frontend/onnx/parameter_looks.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

ir::HostTensor F32(ir::Dims dims, std::vector<float> values) {
  return ir::HostTensor::FromVector(ir::DType::kF32, std::move(dims), values);
}

ImportOptions Training() {
  ImportOptions options;
  options.training = true;
  options.losses.push_back({ir::LossKind::kMse, "y", "t"});
  return options;
}

// Values that a generator of numbers would give.
std::vector<float> Random(size_t count, uint32_t seed) {
  std::vector<float> values(count);
  for (float& v : values) {
    seed = seed * 1664525U + 1013904223U;
    v = static_cast<float>(seed >> 8) / static_cast<float>(1 << 24) - 0.5F;
  }
  return values;
}

TEST(ParameterLooks, TablesMasksAndNamesSpeakForBuffers) {
  std::vector<float> sines;
  std::vector<float> slopes;
  for (int i = 0; i < 40; ++i) sines.push_back(std::sin(static_cast<float>(i)));
  for (int i = 0; i < 8; ++i) slopes.push_back(std::pow(2.0F, -static_cast<float>(i)));
  EXPECT_THAT(LooksLikeBuffer("p", F32({1, 5, 8}, sines)), HasSubstr("formula"));
  EXPECT_THAT(LooksLikeBuffer("p", F32({8, 1, 1}, slopes)), HasSubstr("formula"));
  EXPECT_THAT(LooksLikeBuffer("p", F32({4}, {0.1F, 0.2F, 0.3F, 0.4F})), HasSubstr("formula"));
  EXPECT_THAT(LooksLikeBuffer("p", F32({3}, {1, 0, 2})), HasSubstr("whole numbers"));
  EXPECT_THAT(LooksLikeBuffer("norm.mean", F32({2}, {0.4F, 0.1F})), HasSubstr("called"));
}

TEST(ParameterLooks, FreshParametersDoNotLookLikeBuffers) {
  EXPECT_EQ(LooksLikeBuffer("norm.weight", F32({4}, {1, 1, 1, 1})), "");
  EXPECT_EQ(LooksLikeBuffer("norm.bias", F32({5}, {0, 0, 0, 0, 0})), "");
  EXPECT_EQ(LooksLikeBuffer("gamma", F32({4}, {1e-6F, 1e-6F, 1e-6F, 1e-6F})), "");
  EXPECT_EQ(LooksLikeBuffer("meaning", F32({1}, {0.5F})), "");
  for (uint32_t seed = 1; seed <= 200; ++seed) {  // the fewest numbers that can be judged
    EXPECT_EQ(LooksLikeBuffer("w", F32({4}, Random(4, seed * 7919U))), "") << seed;
    EXPECT_EQ(LooksLikeBuffer("w", F32({2, 5}, Random(10, seed))), "") << seed;
  }
}

TEST(ParameterPolicy, TensorsThatLookLikeBuffersAreTrainedAndTold) {
  const auto model = MustLoad(GraphModel(
      R"(g (float[2,2] x) => (float[2,2] y) <float[2] shift = {0.3, 0.7}, float[2] scale = {1.5, 2.5},
           float[2,2] w = {0.1, 0.7, 0.3, 0.2}> {
             a = Sub(x, shift) b = Div(a, scale) c = MatMul(b, w) y = Relu(c) })"));
  ImportOptions options = Training();
  Diagnostics diagnostics;
  ImportedModel m = MustImport(*model, options, &diagnostics);
  EXPECT_EQ(m.plan.Find("scale")->kind, ir::ArgumentKind::kParameter);
  EXPECT_THAT(diagnostics.Render(), HasSubstr("model.parameters: {freeze: [shift, scale]}"));
  EXPECT_THAT(ReportText(BuildReport(*model, {})), HasSubstr("perhaps a buffer"));
  Diagnostics quiet;
  options.rules = {{"shift", false}, {"scale", true}};  // decided: nothing to be said
  m = MustImport(*model, options, &quiet);
  EXPECT_THAT(quiet.Render(), Not(HasSubstr("look like buffers")));
}

TEST(ParameterPolicy, LiteralsOfTorchScriptAreNotTrained) {
  onnx::ModelProto proto = Dotted(GraphModel(
      R"(g (float[1,4,2,2] x) => (float[1,4,2,2] y) <float[4,1,1] n__weight = {1, 2, 3, 5}> {
           one = Constant <value: tensor = float[2] {1, 1}> ()
           zero = Constant <value: tensor = float[2] {0, 0}> ()
           two = Constant <value: tensor = float[2] {0.5, 0.25}> ()
           groups = Constant <value: tensor = int64[3] {0, 2, -1}> ()
           dims = Shape(x) r = Reshape(x, groups) i = InstanceNormalization(r, one, zero)
           b = Reshape(i, dims) c = Mul(b, n__weight) y = Mul(c, two) })"));
  const std::map<std::string, std::string> names = {{"one", "/n/Constant_1_output_0"},
                                                    {"zero", "/n/Constant_2_output_0"},
                                                    {"two", "/Constant_output_0"}};
  for (onnx::NodeProto& node : *proto.mutable_graph()->mutable_node()) {
    for (std::string& name : *node.mutable_input()) {
      if (names.count(name) > 0) name = names.at(name);
    }
    for (std::string& name : *node.mutable_output()) {
      if (names.count(name) > 0) name = names.at(name);
    }
  }
  proto.set_producer_name("pytorch");
  ImportOptions options = Training();
  const auto model = MustLoad(proto);
  EXPECT_EQ(MustImport(*model, options).forward.module.tensors.size(), 1u);
  // Globs that freeze them ask for what is the case; a rule that names one trains it.
  options.rules = {{"/n/*", false}, {"/Constant_output_0", true}};
  EXPECT_EQ(MustImport(*model, options).forward.module.tensors.size(), 2u);
  // Other exporters store weights so.
  proto.set_producer_name("PaddlePaddle");
  options.rules.clear();
  EXPECT_NE(MustImport(*MustLoad(proto), options).plan.Find("/Constant_output_0")->constant, true);
}

constexpr const char* kRound = R"(g (float[2,2] x) => (float[2,2] y)
  <float[2,2] a__weight = {0.1, 0.7, 0.3, 0.2}, float[2,2] o__weight = {0.4, 0.3, 0.2, 0.6}> {
    a = MatMul(x, a__weight) r = Round(a) s = Relu(r) y = MatMul(s, o__weight) })";

TEST(ParameterPolicy, WeightsBehindANodeWithoutGradientAreNamed) {
  const auto model = MustLoad(Dotted(GraphModel(kRound)));
  ImportOptions options = Training();
  Diagnostics diagnostics;
  const ImportedModel m = MustImport(*model, options, &diagnostics);
  EXPECT_EQ(m.plan.Find("a.weight")->kind, ir::ArgumentKind::kFrozen);
  EXPECT_EQ(m.plan.Find("o.weight")->kind, ir::ArgumentKind::kParameter);
  EXPECT_THAT(
      diagnostics.Render(),
      HasSubstr("warning: a.weight: not trained, since cut off from the loss by 'r' (Round)"));
  const ModelReport report = BuildReport(*model, {});
  EXPECT_EQ(report.trained_elements, 4);
  EXPECT_THAT(ReportText(report), HasSubstr("cut off from the loss by 'r' (Round)"));
  ASSERT_EQ(report.problems.size(), 1u);
  EXPECT_EQ(report.problems[0].op, "Round");
  options.rules = {{"a.*", false}};  // as wanted: no warning
  Diagnostics quiet;
  MustImport(*model, options, &quiet);
  EXPECT_THAT(quiet.Render(), Not(HasSubstr("warning")));
}

TEST(ParameterPolicy, NothingToTrainSaysWhy) {
  const auto model = MustLoad(Dotted(GraphModel(kRound)));
  ImportOptions options = Training();
  options.rules = {{"o.*", false}};
  options.losses[0].prediction_location = {"job.yaml", 3, 9};
  EXPECT_THAT(RefuseImport(*model, options),
              AllOf(HasSubstr("job.yaml:3:9: error: nothing to train"), HasSubstr("m.onnx"),
                    HasSubstr("1 weight: cut off from the loss by 'r' (Round)"),
                    HasSubstr("1 weight: frozen by 'o.*'")));
  EXPECT_THAT(RefuseImport(*MustLoad(GraphModel("g (float[2] x) => (float[2] y) { y = Relu(x) }")),
                           Training()),
              HasSubstr("depends on no weight"));
}

TEST(ParameterPolicy, EveryUnsupportedNodeIsReportedWhateverFailedBefore) {
  const auto model = MustLoad(GraphModel(
      R"(g (float[N,4] x) => (float[a] y) <float[4,4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}> {
           m = MatMul(x, w) d = Unique(m) k = NonZero(d) f = Cast <to = 1> (k) y = Unique(f) })"));
  ImportOptions options = Training();
  const auto all =
      AllOf(HasSubstr("'d' (Unique)"), HasSubstr("'k' (NonZero)"), HasSubstr("'y' (Unique)"));
  options.dims = {{"N", 2}};
  EXPECT_THAT(RefuseImport(*model, options), all);
  options.dims.clear();  // an unbound dim does not hide them
  EXPECT_THAT(RefuseImport(*model, options),
              AllOf(all, HasSubstr("symbolic dims without a value")));
}

TEST(ParameterPolicy, ReportsFitOneHundredColumns) {
  onnx::ModelProto proto = Dotted(GraphModel(kRound));
  const std::string longer =
      "encoder.layers.11.attention.output.projection.with.a.long.name.weight";
  proto.mutable_graph()->mutable_initializer(0)->set_name(longer);
  proto.mutable_graph()->mutable_node(0)->set_input(1, longer);
  proto.mutable_graph()->mutable_node(1)->set_name("/" + longer + "/Round");
  const std::string text = ReportText(BuildReport(*MustLoad(proto), {}));
  EXPECT_THAT(text, HasSubstr("name"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 100u) << line;
    EXPECT_FALSE(line.ends_with(' ')) << line;
  }
}

}  // namespace
}  // namespace hyper::onnx_frontend
