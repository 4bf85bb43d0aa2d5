#include <cmath>

#include "frontend/onnx/importer.h"
#include "onnx/defs/schema.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ir::HostTensor F32(ir::Dims dims, std::vector<float> values) {
  return ir::HostTensor::FromVector(ir::DType::kF32, std::move(dims), values);
}

ImportOptions Training(ir::LossKind kind, const std::string& prediction,
                       const std::string& target = "") {
  ImportOptions options;
  options.training = true;
  LossSpec loss;
  loss.kind = kind;
  loss.prediction = prediction;
  loss.target = target;
  options.losses.push_back(loss);
  return options;
}

const ParameterDecision& Decision(const ImportedModel& m, const std::string& name) {
  const ParameterDecision* d = m.plan.Find(name);
  EXPECT_NE(d, nullptr) << name;
  static const ParameterDecision none;
  return d == nullptr ? none : *d;
}

// Every record must know the newest version of its op, or say which it stops at.
TEST(ImportTargets, KnowTheVersionsOfTheirOps) {
  for (const ImportTarget& t : ImportTargets().targets()) {
    if (t.op == "SimplifiedLayerNormalization" || t.domain == "com.microsoft") continue;
    const std::string domain(t.domain);
    const auto* newest = onnx::OpSchemaRegistry::Schema(std::string(t.op), MaxOpset(), domain);
    ASSERT_NE(newest, nullptr) << t.op;
    if (newest->Deprecated()) continue;
    EXPECT_EQ(t.newest, newest->SinceVersion()) << t.op;
    const auto* oldest = onnx::OpSchemaRegistry::Schema(std::string(t.op), kMinOpset, domain);
    if (oldest != nullptr) {
      EXPECT_LE(t.oldest, oldest->SinceVersion()) << t.op;
    }
    EXPECT_FALSE(t.doc.empty()) << t.op;
  }
}

TEST(Import, ListsUnboundDimsTogether) {
  const auto model = MustLoad(GraphModel(
      "g (float[N, S] x, float[N, T] y) => (float[a, b] z) { z = Concat <axis = 1> (x, y) }"));
  EXPECT_THAT(RefuseImport(*model, {}),
              AllOf(HasSubstr("'N' (of x[0], y[0])"), HasSubstr("'S'"), HasSubstr("'T'")));
  ImportOptions options;
  options.dims = {{"N", 2}, {"S", 3}, {"T", 4}};
  const ImportedModel imported = MustImport(*model, options);
  EXPECT_THAT(imported.forward.module.Find("eval")
                  ->type(imported.forward.module.Find("eval")->results()[0].value)
                  .dims,
              ElementsAre(2, 7));
  options.dims["M"] = 1;
  EXPECT_THAT(RefuseImport(*model, options), HasSubstr("no input has a symbolic dim 'M'"));
}

TEST(Import, FoldsShapeArithmetic) {
  const auto model = MustLoad(GraphModel(R"(g (float[N, 6] x) => (float[a, b, c] y)
    <int64 zero = {0}, int64[1] axis = {0}, int64[2] tail = {2, -1}, float two = {2.0}> {
      s = Shape(x) n = Gather(s, zero) u = Unsqueeze(n, axis) shape = Concat <axis = 0> (u, tail)
      r = Reshape(x, shape) m = Cast <to = 1> (n) h = Sqrt(m) y = Div(r, h) })"));
  ImportOptions options;
  options.dims = {{"N", 4}};
  const ImportedModel imported = MustImport(*model, options);
  const ir::Function& eval = *imported.forward.module.Find("eval");
  EXPECT_EQ(eval.order().size(), 2u) << ir::Print(eval);  // reshape and one map with 2.0 inside
  EXPECT_THAT(eval.type(eval.results()[0].value).dims, ElementsAre(4, 2, 3));
}

TEST(Import, UnsupportedNodesComeInOneList) {
  const auto model =
      MustLoad(GraphModel(R"(g (float[4] x, int64[1] k, float[4] u) => (int64[a, b] y, float[c] z) {
    y = NonZero(x) t = Expand(u, k) z = Relu(t) })"));
  EXPECT_THAT(
      RefuseImport(*model, {}),
      AllOf(HasSubstr("node 'y' (NonZero): "), HasSubstr("not supported"),
            HasSubstr("'t' (Expand)"), HasSubstr("depends on data"), Not(HasSubstr("Relu"))));
}

TEST(Import, WrongShapesAreRefused) {
  EXPECT_THAT(
      RefuseImport(
          *MustLoad(GraphModel("g (float[2] x, float[3] y) => (float[a] z) { z = Add(x, y) }")),
          {}),
      HasSubstr("do not broadcast"));
  EXPECT_THAT(
      RefuseImport(*MustLoad(GraphModel("g (float[2] x) => (float[3] y) { y = Relu(x) }")), {}),
      HasSubstr("output 'y' is declared as [3] but is [2]"));
  EXPECT_THAT(
      RefuseImport(*MustLoad(GraphModel("g (float[2] x) => (int64[2] y) { y = Relu(x) }")), {}),
      HasSubstr("declared as int64 but is float"));
  EXPECT_THAT(
      RefuseImport(
          *MustLoad(GraphModel("g (float[2] x, int64[2] y) => (float[2] z) { z = Add(x, y) }")),
          {}),
      HasSubstr("different element types"));
}

TEST(Import, SoftmaxBefore13Flattens) {
  const char* graph = "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax(x) }";
  for (const auto& [opset, sum] :
       std::vector<std::pair<int, float>>{{11, 1.0F / 12}, {13, 1.0F / 4}}) {
    const auto model = MustLoad(GraphModel(graph, opset));
    const auto r = Evaluated(MustImport(*model, {}), "eval", {});
    EXPECT_FLOAT_EQ(r[0].as<float>()[0], sum) << opset;
  }
}

TEST(Import, FindsParametersAndTheirAliases) {
  onnx::ModelProto proto = GraphModel(R"(g (float[2,3] x) => (float[2,4] y)
    <float[3,4] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[4] bias = {1,2,3,4}, float unused = {1}> {
      eight = Constant <value_float = 8.0> ()
      c = Constant <value: tensor = float[4] {1, 1, 1, 1}> ()
      m = MatMul(x, w) a = Add(m, bias) d = Div(a, eight) e = Mul(d, c)
      lo = Constant <value_float = 0.0> ()
      y = Clip(e, lo) })");
  proto.mutable_graph()->mutable_initializer(0)->set_name("onnx::MatMul_158");
  for (auto& node : *proto.mutable_graph()->mutable_node()) {
    if (node.op_type() == "MatMul") {
      node.set_input(1, "onnx::MatMul_158");
      node.set_name("/layers/layers.0/linear1/MatMul");
    }
  }
  const auto model = MustLoad(proto);
  const ImportedModel m = MustImport(*model, Training(ir::LossKind::kMse, "y", "t"));
  EXPECT_EQ(Decision(m, "onnx::MatMul_158").alias, "layers.0.linear1.weight");
  EXPECT_EQ(Decision(m, "bias").kind, ir::ArgumentKind::kParameter);
  EXPECT_TRUE(Decision(m, "eight").constant);
  EXPECT_FALSE(Decision(m, "c").constant);  // a vector that is multiplied
  EXPECT_FALSE(Decision(m, "unused").needed);
  EXPECT_EQ(m.forward.module.tensors.size(), 3u);
  EXPECT_THAT(m.inputs, ElementsAre("x", "t"));
  EXPECT_EQ(m.forward.step_losses.size(), 1u);
  EXPECT_EQ(m.forward.eval_losses.size(), 1u);
}

TEST(Import, SingleNumbersAndMasksAreNoWeightsUnlessNamed) {
  onnx::ModelProto proto = GraphModel(R"(g (float[2,2] x) => (float[2,2] y)
    <float t17 = {0.5}, float temperature = {2}, float[2,2] mask = {0, 1, 0, 0},
      float[2,2] w = {1,2,3,4}> {
      a = MatMul(x, w) b = Mul(a, t17) c = Mul(b, temperature) y = Add(c, mask) })");
  const float infinite[] = {0, -INFINITY, 0, 0};
  auto* mask = proto.mutable_graph()->mutable_initializer(2);
  mask->clear_float_data();
  mask->set_raw_data(infinite, sizeof(infinite));
  const auto model = MustLoad(proto);
  ImportOptions options = Training(ir::LossKind::kMse, "y", "t");
  options.rules = {{"*", true}};
  Diagnostics diagnostics;
  ImportedModel m = MustImport(*model, options, &diagnostics);
  EXPECT_EQ(m.forward.module.tensors.size(), 1u);
  EXPECT_THAT(diagnostics.Render(), HasSubstr("'temperature' is not trained"));
  options.rules.push_back({"temp*", true});
  m = MustImport(*model, options);
  EXPECT_EQ(m.forward.module.tensors.size(), 2u);
  EXPECT_EQ(Decision(m, "temperature").kind, ir::ArgumentKind::kParameter);
}

TEST(Import, GlobsFreezeAndMustMatch) {
  const auto model = MustLoad(GraphModel(R"(g (float[2,2] x) => (float[2,2] y)
    <float[2,2] w1 = {1,2,3,4}, float[2,2] w2 = {1,2,3,4}> { t = MatMul(x, w1) y = MatMul(t, w2)
      })"));
  ImportOptions options = Training(ir::LossKind::kMse, "y", "t");
  options.losses[0].target = "goal";
  options.rules = {{"*", true}, {"w1", false}};
  const ImportedModel m = MustImport(*model, options);
  EXPECT_EQ(Decision(m, "w1").kind, ir::ArgumentKind::kFrozen);
  EXPECT_EQ(Decision(m, "w2").kind, ir::ArgumentKind::kParameter);
  options.rules.push_back({"w3", false});
  EXPECT_THAT(RefuseImport(*model, options),
              HasSubstr("the pattern 'w3' matches none of the 2 weights"));
}

TEST(Import, IdentityOfAWeightIsAWeightOfItsOwn) {
  const auto model = MustLoad(GraphModel(R"(g (float[2,2] x) => (float[2,2] y)
    <float[2] norm1 = {1, 1}> { norm2 = Identity(norm1) a = Mul(x, norm1) b = Add(a, norm1)
      y = Mul(b, norm2) })"));
  Diagnostics diagnostics;
  const ImportedModel m = MustImport(*model, Training(ir::LossKind::kMse, "y", "t"), &diagnostics);
  EXPECT_THAT(diagnostics.Render(), HasSubstr("'norm2' is an Identity of 'norm1'"));
  ASSERT_EQ(m.forward.module.tensors.size(), 2u);  // norm1 stays tied where it is used twice
  EXPECT_EQ(Decision(m, "norm2").places[0].place, TensorPlace::kIdentity);
}

TEST(Import, UnknownLossTensorSuggestsOutputs) {
  const auto model =
      MustLoad(GraphModel("g (float[2,2] x) => (float[2,2] logits) <float[2,2] w = {1,2,3,4}> "
                          "{ logits = MatMul(x, w) }"));
  EXPECT_THAT(RefuseImport(*model, Training(ir::LossKind::kCrossEntropy, "logit", "labels")),
              AllOf(HasSubstr("'logit'"), HasSubstr("logits")));
  EXPECT_THAT(RefuseImport(*model, Training(ir::LossKind::kOutput, "logits")),
              HasSubstr("a scalar is expected"));
  const ImportedModel m =
      MustImport(*model, Training(ir::LossKind::kCrossEntropy, "logits", "labels"));
  const ir::Function& step = *m.forward.module.Find("step");
  const int labels = step.FindArgument(ir::ArgumentKind::kInput, "labels");
  ASSERT_GE(labels, 0);
  EXPECT_EQ(step.type(step.arguments()[static_cast<size_t>(labels)].value).ToString(), "i64[2]");
}

constexpr const char* kBatchNorm = R"(g (float[4,2] x) => (float[4,2] y)
  <float[2] s = {1, 1}, float[2] b = {0, 0}, float[2] mean = {1, 1}, float[2] var = {4, 4}> {
    y = BatchNormalization <epsilon = 0.0> (x, s, b, mean, var) })";

TEST(Import, BatchNormLearnsInStepAndUsesStateInEval) {
  const auto model = MustLoad(GraphModel(kBatchNorm));
  ImportOptions options = Training(ir::LossKind::kMse, "y", "t");
  Diagnostics diagnostics;
  const ImportedModel m = MustImport(*model, options, &diagnostics);
  EXPECT_THAT(diagnostics.Render(), HasSubstr("is in evaluation mode in the file"));
  EXPECT_EQ(CountOps(*m.forward.module.Find("step"), "batch_norm"), 1);
  EXPECT_EQ(CountOps(*m.forward.module.Find("eval"), "batch_norm"), 0);
  ASSERT_EQ(m.forward.statistics.size(), 2u);
  EXPECT_EQ(m.forward.statistics[0].state_name, "mean");
  EXPECT_NEAR(m.forward.statistics[1].momentum, 0.9, 1e-6);
  EXPECT_EQ(Decision(m, "var").kind, ir::ArgumentKind::kState);
  const auto r = Evaluated(m, "eval", {{"x", F32({4, 2}, {3, 3, 3, 3, 3, 3, 3, 3})}});
  EXPECT_FLOAT_EQ(r[0].as<float>()[0], 1.0F);
  // Frozen weights keep the running statistics in training too.
  std::string scaled = kBatchNorm;
  scaled.replace(scaled.find("y = "), 1, "n");
  scaled.replace(scaled.rfind('}'), 1, "y = Mul(n, w) }");
  scaled.replace(scaled.find("<float[2]"), 9, "<float[2] w = {2, 3}, float[2]");
  options.rules = {{"s", false}, {"b", false}};
  const ImportedModel frozen = MustImport(*MustLoad(GraphModel(scaled)), options);
  EXPECT_TRUE(frozen.forward.statistics.empty());
  EXPECT_EQ(CountOps(*frozen.forward.module.Find("step"), "batch_norm"), 0);
  // So do statistics that are frozen by name, both of them, while scale and bias train.
  options.rules = {{"*", true}, {"mean", false}, {"var", false}};
  const ImportedModel kept = MustImport(*model, options);
  EXPECT_TRUE(kept.forward.statistics.empty());
  EXPECT_EQ(CountOps(*kept.forward.module.Find("step"), "batch_norm"), 0);
  EXPECT_EQ(Decision(kept, "var").kind, ir::ArgumentKind::kFrozen);
  EXPECT_EQ(Decision(kept, "s").kind, ir::ArgumentKind::kParameter);
  options.rules = {{"*", true}, {"mean", false}};
  EXPECT_EQ(MustImport(*model, options).forward.statistics.size(), 2u);
}

// What exporters write for norms without running statistics: those of the batch, computed by
// nodes or by the operator itself.
TEST(Import, BatchNormWithoutRunningStatisticsUsesTheBatch) {
  const std::string head =
      "g (float[4,2] x) => (float[4,2] y) <float[2] s = {2, 3}, float[2] b = "
      "{1, 0}> { ";
  const auto x =
      ir::HostTensor::FromVector<float>(ir::DType::kF32, {4, 2}, {1, 10, 3, 10, 5, 30, 7, 30});
  for (const std::string& body :
       {"m = ReduceMean <axes = [0], keepdims = 0> (x) k = ReduceMean <axes = [0]> (x) "
        "d = Sub(x, k) q = Mul(d, d) v = ReduceMean <axes = [0], keepdims = 0> (q) "
        "y = BatchNormalization <epsilon = 0.0> (x, s, b, m, v) }",
        "n = Constant <value_ints = [2]> () m = ConstantOfShape(n) v = ConstantOfShape(n) "
        "y, u, w = BatchNormalization <training_mode = 1, epsilon = 0.0> (x, s, b, m, v) }"}) {
    const auto model = MustLoad(GraphModel(head + body));
    ImportOptions options;
    options.training = true;
    options.losses.push_back({ir::LossKind::kMse, "y", "t"});
    Diagnostics diagnostics;
    const ImportedModel m = MustImport(*model, options, &diagnostics);
    EXPECT_EQ(m.plan.Find("s")->kind, ir::ArgumentKind::kParameter);
    EXPECT_TRUE(m.forward.statistics.empty());
    for (const char* function : {"step", "eval"}) {
      ImportedModel with_result = m;
      ir::Function& f = *with_result.forward.module.Find(function);
      if (f.results().empty()) f.AddResult(with_result.forward.step_losses[0].prediction, "y");
      const auto r = Evaluated(with_result, function, {{"x", x}});
      EXPECT_NEAR(r[0].as<float>()[0], 1 - 2 * 3 / std::sqrt(5.0), 1e-5) << function << body;
      EXPECT_NEAR(r[0].as<float>()[7], 3, 1e-5) << function << body;
    }
    if (body.find("training_mode") != std::string::npos) {
      EXPECT_THAT(diagnostics.Render(), HasSubstr("normalises by the batch, in evaluation too"));
    }
  }
}

TEST(Import, UnbiasedVarianceIsScaled) {
  const auto model = MustLoad(GraphModel(kBatchNorm));
  ImportOptions options = Training(ir::LossKind::kMse, "y", "t");
  ImportedModel population = MustImport(*model, options);
  options.unbiased_running_variance = true;
  ImportedModel unbiased = MustImport(*model, options);
  const ir::HostTensor x = F32({4, 2}, {1, 0, 2, 0, 3, 0, 4, 0});
  auto variance = [&](ImportedModel& m) {
    ir::Function& step = *m.forward.module.Find("step");
    step.AddResult(m.forward.statistics[1].batch_value, "v");
    return Evaluated(m, "step", {{"x", x}})[0].as<float>()[0];
  };
  EXPECT_FLOAT_EQ(variance(population), 1.25F);
  EXPECT_FLOAT_EQ(variance(unbiased), 5.0F / 3);
}

TEST(Import, MergedRunningStatisticsAreSplit) {
  const auto model = MustLoad(GraphModel(R"(g (float[4,2] x) => (float[4,2] y)
    <float[2] one = {1, 1}, float[2] zero = {0, 0}> {
      t = BatchNormalization (x, one, zero, zero, one) y = BatchNormalization (t, one, zero,
      zero, one) })"));
  const ImportedModel m = MustImport(*model, Training(ir::LossKind::kMse, "y", "t"));
  std::vector<std::string> states;
  for (const auto& t : m.forward.module.tensors) {
    if (t.kind == ir::ArgumentKind::kState) states.push_back(t.name);
  }
  EXPECT_EQ(states.size(), 4u);
  EXPECT_EQ(m.forward.statistics.size(), 4u);
}

TEST(Import, DropoutDropsInStepOnly) {
  const auto model = MustLoad(GraphModel(R"(g (float[64,64] x) => (float[64,64] y)
    <float[64] w = {0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,
      2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3,4,5,6,7,8,9,0,1,2,3},
     float ratio = {0.25}, bool train = {1}> {
      d, mask = Dropout(x, ratio, train) y = Add(d, w) })"));
  ImportedModel m = MustImport(*model, Training(ir::LossKind::kMse, "y", "t"));
  ir::Function& step = *m.forward.module.Find("step");
  EXPECT_GE(step.FindArgument(ir::ArgumentKind::kRng, "rng"), 0);
  EXPECT_EQ(CountOps(*m.forward.module.Find("eval"), "random_uniform"), 0);
  for (ir::NodeId id : step.order()) {
    if (step.node(id).op->name == "map" && step.node(id).inputs.size() == 2 &&
        step.node(id).source == "d") {
      step.AddResult(step.node(id).outputs[0], "dropped");
    }
  }
  ASSERT_EQ(step.results().size(), 1u);
  const auto r = Evaluated(m, "step", {{"x", F32({64, 64}, std::vector<float>(4096, 3.0F))}});
  int zeros = 0;
  for (float v : r[0].as<float>()) {
    zeros += v == 0;
    EXPECT_TRUE(v == 0 || std::abs(v - 4) < 1e-5) << v;
  }
  EXPECT_NEAR(zeros, 1024, 150);
}

TEST(Import, StepAndEvalShareOpIds) {
  const auto model = MustLoad(GraphModel(R"(g (float[4,2] x) => (float[4,2] y, float[4,2] z)
    <float[2,2] w = {1,2,3,4}> { z = Relu(x) m = MatMul(x, w) y = Tanh(m) })"));
  const ImportedModel m = MustImport(*model, Training(ir::LossKind::kMse, "y", "t"));
  std::map<std::string, int64_t> ids;
  for (const char* name : {"step", "eval"}) {
    const ir::Function& f = *m.forward.module.Find(name);
    for (ir::NodeId id : f.order()) {
      const auto [it, inserted] = ids.emplace(f.node(id).source, f.node(id).op_id);
      EXPECT_EQ(it->second, f.node(id).op_id) << f.node(id).source << inserted;
    }
  }
  EXPECT_EQ(ids.size(), 3u);
}

TEST(Import, ArgumentsReturnedAsOutputsAreCopied) {
  const auto model = MustLoad(GraphModel(
      "g (float[2] x) => (float[2] x, float[2] w) <float[2] w = {1, 2}> { t = Relu(x) }"));
  const ImportedModel m = MustImport(*model, {});
  EXPECT_EQ(CountOps(*m.forward.module.Find("eval"), "copy"), 2) << ir::Print(m.forward.module);
  const auto r = Evaluated(m, "eval", {{"x", F32({2}, {5, 6})}});
  EXPECT_EQ(r[0].as<float>()[1], 6.0F);
  EXPECT_EQ(r[1].as<float>()[1], 2.0F);
}

TEST(Import, FunctionBodiesOfOnnxAreUsed) {
  const auto model = MustLoad(GraphModel(
      "g (float[2,6] x) => (float[2,6] y) { y = MeanVarianceNormalization <axes = [1]> (x) }"));
  const auto r = Evaluated(MustImport(*model, {}), "eval",
                           {{"x", F32({2, 6}, {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6})}});
  EXPECT_NEAR(r[0].as<float>()[0], -1.46385, 1e-4);
}

TEST(Import, DoublePrecisionKeepsTheDigitsOfFormulas) {
  const auto model = MustLoad(GraphModel(
      R"(g (float[1] x, int64[1] k) => (float[2] y) <float[2] w = {1, 1}> {
      f = Cast <to = 1> (k) a = Add(x, f) g = Gelu(a) y = Mul(g, w) })",
      20));
  ImportOptions options;
  options.double_precision = true;
  const ImportedModel m = MustImport(*model, options);
  ASSERT_NE(m.forward.module.FindTensor("w"), nullptr);
  EXPECT_EQ(m.forward.module.FindTensor("w")->type.dtype, ir::DType::kF64);
  const double x = 0.7;
  const auto r = Evaluated(m, "eval",
                           {{"x", ir::HostTensor::FromVector<double>(ir::DType::kF64, {1}, {x})},
                            {"k", ir::HostTensor::FromVector<int64_t>(ir::DType::kI64, {1}, {1})}});
  const double want = 0.5 * (1 + x) * (1 + std::erf((1 + x) / std::sqrt(2.0)));
  EXPECT_NEAR(r[0].as<double>()[0], want, 1e-15);
}

TEST(Import, ConstantConditionsPickABranch) {
  const auto model = MustLoad(GraphModel(R"(g (float[3] x) => (float[3] y) {
    s = Size(x) three = Constant <value_int = 3> () c = Equal(s, three)
    y = If (c) <then_branch = t () => (float[3] a) { a = Neg(x) }, else_branch = e () =>
      (float[3] b) { b = Relu(x) }> })"));
  const auto r = Evaluated(MustImport(*model, {}), "eval", {{"x", F32({3}, {1, 2, 3})}});
  EXPECT_EQ(r[0].as<float>()[2], -3.0F);
}

}  // namespace
}  // namespace hyper::onnx_frontend
