// Public bug reports about gradients and about graphs that are cut; the test names begin with the
// number of the case:
//   AD1 onnxruntime#29790 · AD2 #19370 · AD3 #16867 · AD4 #19186 · AD5 pytorch#41007 ·
//   AD6 pytorch#108342 · AD7 onnxruntime#10517 · AD8 #9375 · AD9 #16866 · AD10 pytorch#116349 ·
//   AD11 cTensor#5 · PX1 onnxruntime#32131 · PX2 #729 · PX3 onnx#4488 · PX6 opencv#29314
#include <cmath>

#include "bug_cases.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// Scale, bias and statistics share their tensors, as exporters that merge equal values write them.
onnx::ModelProto MergedNorm(const std::string& momentum) {
  return GraphModel(
      "g (float[4,2] x) => (float loss) <float[2] one = {1, 1}, float[2] zero = "
      "{0, 0}> { y, m, v = BatchNormalization <epsilon = 0.0, training_mode = 1, "
      "momentum = " +
      momentum +
      "> (x, one, zero, zero, one) q = Mul(y, y) p = Mul(q, y) "
      "loss = ReduceSum <keepdims = 0> (p) }");
}

TEST(BugCasesTraining, AD1StatisticsNeverShareMemoryWithParameters) {
  const auto x = Floats({4, 2}, {1, 0, 2, 0, 3, 1, 6, 9});
  std::vector<std::vector<float>> losses;
  for (const char* momentum : {"0.0", "0.5", "1.0"}) {
    const auto d = Differentiate(MergedNorm(momentum), {{"x", x}});
    losses.push_back(d.loss);
    EXPECT_EQ(d.gradients.size(), 2u);
    EXPECT_EQ(d.model.forward.module.tensors.size(), 4u);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
}

TEST(BugCasesTraining, AD2And3RunningStatisticsFollowTheBatch) {
  const auto d = Differentiate(MergedNorm("0.5"), {});
  ASSERT_EQ(d.model.forward.statistics.size(), 2u);
  ir::Function step = *d.model.forward.module.Find("step");
  for (const auto& s : d.model.forward.statistics) {
    EXPECT_NEAR(s.momentum, 0.5, 1e-6);
    EXPECT_EQ(d.model.forward.module.FindTensor(s.state_name)->kind, ir::ArgumentKind::kState);
    step.AddResult(s.batch_value, "batch." + s.state_name);
  }
  ImportedModel with_statistics = d.model;
  *with_statistics.forward.module.Find("step") = step;
  const auto r =
      Evaluated(with_statistics, "step", {{"x", Floats({4, 2}, {1, 0, 2, 0, 3, 0, 4, 0})}});
  EXPECT_FLOAT_EQ(r[r.size() - 2].as<float>()[0], 2.5F);
  EXPECT_FLOAT_EQ(r[r.size() - 1].as<float>()[0], 1.25F);  // population variance
}

TEST(BugCasesTraining, AD4OnlyFloatsOnTheWayToTheLossTrain) {
  const auto d = Differentiate(GraphModel(R"(g (float[2,2] x) => (float loss)
    <int64[1] shape = {4}, float[4] w = {1,2,3,4}, float[4] aside = {1,2,3,4}> {
      r = Reshape(x, shape) m = Mul(r, w) other = Mul(r, aside)
      loss = ReduceSum <keepdims = 0> (m) })"),
                               {{"x", Floats({2, 2}, {1, 2, 3, 4})}});
  EXPECT_EQ(d.gradients.size(), 1u);
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(1, 2, 3, 4));
  EXPECT_FALSE(d.model.plan.Find("aside")->needed);
  EXPECT_EQ(d.model.plan.Find("shape"), nullptr);
}

TEST(BugCasesTraining, AD5TransposedWeightsTrainInTheirOwnLayout) {
  const auto d = Differentiate(GraphModel(R"(g (float[1,2] x) => (float loss)
    <float[3,2] w = {1,2,3,4,5,6}> { t = Transpose(w) y = MatMul(x, t)
      loss = ReduceSum <keepdims = 0> (y) })"),
                               {{"x", Floats({1, 2}, {7, 9})}});
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(7, 9, 7, 9, 7, 9));
}

TEST(BugCasesTraining, AD6AndPX3AllUsesOfATiedWeightCount) {
  const auto d = Differentiate(GraphModel(R"(g (float[1,2] x, int64[2] ids) => (float loss)
    <float[3,2] w = {1,2,3,4,5,6}> { e = Gather(w, ids) t = Transpose(w) y = MatMul(x, t)
      a = ReduceSum <keepdims = 0> (e) b = ReduceSum <keepdims = 0> (y) loss = Add(a, b) })"),
                               {{"x", Floats({1, 2}, {7, 9})}, {"ids", Int64s({2}, {2, 2})}});
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(7, 9, 7, 9, 9, 11));
}

constexpr const char* kBranch = R"(g (float[2] x) => (float loss) <float[2] w = {3, 4}> {
    s = Size(x) two = Constant <value_int = 2> () c = Equal(s, two)
    y = If (c) <then_branch = t () => (float[2] a) { a = Mul(x, w) },
                else_branch = e () => (float[2] b) { b = Identity(x) }>
    loss = ReduceSum <keepdims = 0> (y) })";

TEST(BugCasesTraining, AD6MergedWeightsAreApartAndUntiedOnesCanBeTied) {
  const std::map<std::string, ir::HostTensor> feed = {{"x", Floats({1, 2}, {7, 9})}};
  const auto apart = Differentiate(GraphModel(R"(g (float[1,2] x) => (float loss)
    <float[2] scale = {1, 1}> { other = Identity(scale) a = Mul(x, scale) b = Mul(a, other)
      loss = ReduceSum <keepdims = 0> (b) })"),
                                   feed);
  EXPECT_THAT(apart.gradients.at("scale"), ElementsAre(7, 9));
  EXPECT_THAT(apart.gradients.at("other"), ElementsAre(7, 9));
  ImportOptions options = TrainOn("loss");
  options.ties.push_back({{"w", "head"}, {}});
  const auto tied = DifferentiateWith(options, GraphModel(R"(g (float[1,2] x) => (float loss)
    <float[2,1] w = {2, 3}, float[1,2] head = {2, 3}> { h = MatMul(x, w) y = MatMul(h, head)
      loss = ReduceSum <keepdims = 0> (y) })"),
                                      feed);
  ASSERT_EQ(tied.gradients.size(), 1u);
  EXPECT_THAT(tied.gradients.at("w"), ElementsAre(7 * 5 + 41, 9 * 5 + 41));
}

TEST(BugCasesTraining, AD7AndPX1And2AWeightReadOnlyInABranchTrains) {
  const auto d = Differentiate(GraphModel(kBranch), {{"x", Floats({2}, {5, 6})}});
  EXPECT_THAT(d.loss, ElementsAre(15 + 24));
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(5, 6));
}

TEST(BugCasesTraining, PX2Ir4BranchesSeeTheWeightsOfTheGraph) {
  onnx::ModelProto model = GraphModel(kBranch, 9);
  model.set_ir_version(4);
  model.mutable_graph()->mutable_node(1)->mutable_attribute(0)->set_name("value");
  auto* value = model.mutable_graph()->mutable_node(1)->mutable_attribute(0);
  value->set_type(onnx::AttributeProto::TENSOR);
  value->clear_i();
  value->mutable_t()->set_data_type(onnx::TensorProto::INT64);
  value->mutable_t()->add_int64_data(2);
  const auto d = Differentiate(model, {{"x", Floats({2}, {5, 6})}});
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(5, 6));
}

TEST(BugCasesTraining, AD7AConditionOfTheDataIsRefusedByName) {
  const auto model = MustLoad(GraphModel(R"(g (float[2] x, bool c) => (float loss)
    <float[2] w = {3, 4}> {
      y = If (c) <then_branch = t () => (float[2] a) { a = Mul(x, w) },
                  else_branch = e () => (float[2] b) { b = Identity(x) }>
      loss = ReduceSum <keepdims = 0> (y) })"));
  ImportOptions options = TrainOn("loss");
  EXPECT_THAT(RefuseImport(*model, options),
              AllOf(HasSubstr("'y' (If)"), HasSubstr("the condition ('c')"),
                    HasSubstr("model.bind: {c: ...}")));
  options.bind["c"] = {ir::HostTensor::FromVector<uint8_t>(ir::DType::kBool, {}, {1}), {}};
  EXPECT_EQ(MustImport(*model, options).plan.Find("w")->kind, ir::ArgumentKind::kParameter);
}

TEST(BugCasesTraining, AD8FunctionsAreInlinedBeforeGradients) {
  const auto d = Differentiate(ParseModel(R"(
<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
g (float[1,2] x) => (float loss) <float[2,1] w = {1, 2}, float[1] b = {3}> {
  y = pkg.linear (x, w, b) loss = ReduceSum <keepdims = 0> (y) }
<opset_import: ["" : 17], domain: "pkg">
linear (x, w, b) => (y) { m = MatMul(x, w) y = Add(m, b) }
)"),
                               {{"x", Floats({1, 2}, {5, 6})}});
  EXPECT_THAT(d.loss, ElementsAre(20));
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(5, 6));
}

TEST(BugCasesTraining, AD9AtanAndReduceMinHaveGradientsRoundSaysNo) {
  const auto d = Differentiate(GraphModel(R"(g (float[2] x) => (float loss)
    <float[2] w = {0.5, 2}, float[3] u = {3, 1, 2}> { a = Atan(w) b = ReduceMin <keepdims = 0> (u)
      s = ReduceSum <keepdims = 0> (a) loss = Add(s, b) })"),
                               {});
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(FloatNear(0.8F, 1e-6F), FloatNear(0.2F, 1e-6F)));
  EXPECT_THAT(d.gradients.at("u"), ElementsAre(0, 1, 0));
  const auto up = Differentiate(GraphModel(R"(g (float[1] x) => (float loss)
    <float[1,1,2] w = {1, 2}, float[3] scales = {1, 1, 2}> { y = Resize(w, , scales)
      loss = ReduceSum <keepdims = 0> (y) })"),
                                {});
  EXPECT_THAT(up.gradients.at("w"), ElementsAre(2, 2));
  const auto model = MustLoad(GraphModel(R"(g (float[2] x) => (float loss)
    <float[2] w = {0.5, 2}> { r = Round(w) loss = ReduceSum <keepdims = 0> (r) })"));
  EXPECT_THAT(RefuseImport(*model, TrainOn("loss")),
              AllOf(HasSubstr("cut off from the loss by 'r' (Round)"), HasSubstr("w")));
}

TEST(BugCasesTraining, AD10MeansAreOverTheLabelsThatCount) {
  const auto graph = GraphModel(R"(g (float[2,2] x, int64[2] labels) => (float loss)
    <float[2,2] w = {0, 0, 0, 0}> { z = Add(x, w)
      loss = SoftmaxCrossEntropyLoss <reduction = "mean", ignore_index = -100> (z, labels) })");
  const auto half = Differentiate(graph, {{"labels", Int64s({2}, {1, -100})}});
  ASSERT_EQ(half.loss.size(), 1u);
  EXPECT_NEAR(half.loss[0], std::log(2.0), 1e-6);
  EXPECT_THAT(half.gradients.at("w"),
              ElementsAre(FloatNear(0.5F, 1e-6F), FloatNear(-0.5F, 1e-6F), 0, 0));
  // With class weights the mean divides by those of the labels that count.
  const auto weighted =
      Differentiate(GraphModel(R"(g (float[3,2] x, int64[3] labels) => (float loss)
    <float[3,2] w = {0, 0, 0, 0, 0, 0}> { z = Add(x, w)
      c = Constant <value: tensor = float[2] {1, 3}> ()
      loss = SoftmaxCrossEntropyLoss <reduction = "mean", ignore_index = -100> (z, labels, c) })"),
                    {{"labels", Int64s({3}, {1, -100, 0})}});
  EXPECT_NEAR(weighted.loss.at(0), std::log(2.0), 1e-6);
  EXPECT_THAT(weighted.gradients.at("w"),
              ElementsAre(FloatNear(0.375F, 1e-6F), FloatNear(-0.375F, 1e-6F), 0, 0,
                          FloatNear(-0.125F, 1e-6F), FloatNear(0.125F, 1e-6F)));
  // All ignored: no gradient, whatever the mean of nothing is.
  const auto none = Differentiate(graph, {{"labels", Int64s({2}, {-100, -100})}});
  EXPECT_THAT(none.gradients.at("w"), Each(0));
}

TEST(BugCasesTraining, AD11EveryPathCountsOnce) {
  const auto d = Differentiate(GraphModel(R"(g (float[1] k) => (float loss)
    <float[2] x = {3, 5}, float[2] a = {7, 11}, float two = {2}> { xa = Mul(x, a) p = Mul(x, xa)
      q = Mul(p, two) xx = Mul(x, x) r = Mul(xx, a) f = Add(q, r)
      loss = ReduceSum <keepdims = 0> (f) })"),
                               {});
  EXPECT_THAT(d.gradients.at("a"), ElementsAre(27, 75));
  EXPECT_THAT(d.gradients.at("x"), ElementsAre(6 * 3 * 7, 6 * 5 * 11));
}

TEST(BugCasesTraining, PX6DamagedBytesAreAnswered) {
  std::string good;
  GraphModel(kBranch).SerializeToString(&good);
  int refused = 0;
  for (size_t i = 0; i < good.size(); ++i) {
    for (const unsigned char bit : {0x01, 0x08, 0x80}) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ bit);
      onnx::ModelProto model;
      if (!model.ParseFromString(damaged)) continue;
      Diagnostics diagnostics;
      auto loaded = LoadModelProto(model, "m.onnx", "", &diagnostics);
      if (loaded.ok() && Import(**loaded, TrainOn("loss"), &diagnostics).ok()) continue;
      ++refused;
      EXPECT_GT(diagnostics.error_count(), 0) << i;
    }
  }
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace hyper::onnx_frontend
