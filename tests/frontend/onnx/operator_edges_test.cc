// Operators at the edges of what their operands may be: refused by name, or right.
#include "frontend/onnx/refusal.h"
#include "ir/training.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refused(const std::string& graph, int opset = 18) {
  const auto model = MustLoad(GraphModel(graph, opset));
  return model == nullptr ? "not loaded" : RefuseImport(*model, {});
}

// Results of a graph without inputs that arrive at run time, or with one f32 input 'x'.
std::vector<ir::HostTensor> Results(const std::string& graph,
                                    std::map<std::string, ir::HostTensor> inputs = {},
                                    int opset = 18) {
  const auto model = MustLoad(GraphModel(graph, opset));
  return Evaluated(MustImport(*model, {}), "eval", std::move(inputs));
}

ir::HostTensor F32(ir::Dims dims, std::vector<float> values) {
  return ir::HostTensor::FromVector(ir::DType::kF32, std::move(dims), values);
}

std::vector<double> Numbers(const ir::HostTensor& t) {
  std::vector<double> numbers;
  for (int64_t k = 0; k < t.type().elements(); ++k) {
    numbers.push_back(ir::IsFloat(t.type().dtype) ? t.ElementAsDouble(k)
                                                  : static_cast<double>(t.ElementAsInt(k)));
  }
  return numbers;
}

TEST(OperatorEdges, ScatterElementsOfOtherRanks) {
  EXPECT_THAT(
      Refused("g (float[1,1,1] x) => (float[a,b,c] y) <int64[2] i = {0, 0}, float[2] u = {1, "
              "2}> { y = ScatterElements <axis = 2> (x, i, u) }"),
      AllOf(HasSubstr("ScatterElements"), HasSubstr("all have one rank")));
  EXPECT_THAT(
      Refused("g (float[4] x) => (float[4] y) <int64[2] i = {0, 1}, float[3] u = {1, 2, 3}> "
              "{ y = ScatterElements (x, i, u) }"),
      HasSubstr("the updates the shape of the indices"));
}

TEST(OperatorEdges, NothingToEraseFromASequence) {
  EXPECT_THAT(
      Refused("g (float[1] x) => (float[1] y) { s = SequenceEmpty () t = SequenceErase(s) y = "
              "ConcatFromSequence <axis = 0> (t) }"),
      HasSubstr("the sequence is empty"));
}

TEST(OperatorEdges, ResizeFarOutside) {
  const auto resize = [](const std::string& roi, const std::string& attributes) {
    return "g (float[4] x) => (float[4] y) <float[2] roi = {" + roi +
           "}, int64[1] sizes = {4}> { y = Resize <coordinate_transformation_mode = "
           "\"tf_crop_and_resize\", " +
           attributes + "> (x, roi, \"\", sizes) }";
  };
  EXPECT_THAT(Refused(resize("0, 1e30", "mode = \"linear\"")),
              HasSubstr("-1e12 to 1e12 is possible"));
  // No tap lies inside: extrapolated, whatever the kernel would say.
  const auto far = Results(resize("5, 6",
                                  "mode = \"cubic\", exclude_outside = 1, "
                                  "extrapolation_value = 7.0"),
                           {{"x", F32({4}, {1, 2, 3, 4})}});
  EXPECT_THAT(Numbers(far[0]), ElementsAre(7, 7, 7, 7));
}

TEST(OperatorEdges, RangesAreCountedExactly) {
  EXPECT_THAT(
      Refused("g (float[1] x) => (int64[a] y) <int64 z = {0}, int64 n = {999999999}, int64 d "
              "= {1}> { y = Range(z, n, d) }"),
      AllOf(HasSubstr("a range of 999999999 elements"), HasSubstr("4194304 are the most")));
  const auto r = Results(
      "g (float[1] x) => (int64[a] y, int64[b] down) <int64 z = {9007199254740992}, int64 n = "
      "{9007199254740993}, int64 d = {1}, int64 back = {-2}, int64 five = {5}, int64 none = {0}> "
      "{ y = Range(z, n, d) down = Range(five, none, back) }",
      {{"x", F32({1}, {0})}});
  EXPECT_EQ(r[0].type().dims, (ir::Dims{1}));
  EXPECT_THAT(Numbers(r[1]), ElementsAre(5, 3, 1));
}

// Slice-13: with a negative step the start is clamped to an element, the end to before the first.
TEST(OperatorEdges, SliceBackwardsFromBeforeTheBegin) {
  const auto r = Results(
      "g (float[2,5] x) => (float[a,b] y, float[c,d] all) <int64[1] s = {-10}, int64[1] e = {-20}, "
      "int64[1] axis = {1}, int64[1] step = {-1}, int64[1] last = {10}> { y = Slice(x, s, e, axis, "
      "step) all = Slice(x, last, e, axis, step) }",
      {{"x", F32({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})}});
  EXPECT_EQ(r[0].type().dims, (ir::Dims{2, 1}));
  EXPECT_THAT(Numbers(r[0]), ElementsAre(0, 5));
  EXPECT_THAT(Numbers(r[1]), ElementsAre(4, 3, 2, 1, 0, 9, 8, 7, 6, 5));
}

TEST(OperatorEdges, BlocksAndDiagonals) {
  EXPECT_THAT(Refused("g (float[1,3,0,0] x) => (float[a,b,c,d] y) { y = SpaceToDepth <blocksize = "
                      "1099511627776> (x) }"),
              HasSubstr("blocksize 1099511627776 does not fit the input [1,3,0,0]"));
  EXPECT_THAT(Refused("g (float[2,2] x) => (float[2,2] y) <int64[0] k = {}> { y = Trilu(x, k) }"),
              HasSubstr("one value is expected"));
}

TEST(OperatorEdges, FractionsOfIntegersAreRefused) {
  EXPECT_THAT(Refused("g (int32[2,2] x) => (int32[2,2] y) { y = Gemm <alpha = 0.5> (x, x) }"),
              AllOf(HasSubstr("alpha is 0.5"), HasSubstr("whole numbers are expected")));
}

// Forward and gradients of a graph's scalar 'y' with respect to its weight 'w'.
std::vector<double> GradientOfW(const std::string& graph, int opset = 18) {
  const auto model = MustLoad(GraphModel(graph, opset));
  auto imported = MustImport(*model, TrainOn("y"));
  std::vector<std::string> unreached;
  Diagnostics diagnostics;
  auto module =
      ir::BuildTrainingModule(std::move(imported.forward), {}, false, &diagnostics, &unreached);
  EXPECT_TRUE(module.ok()) << diagnostics.Render();
  const ir::Function& step = *module->Find("step");
  std::vector<ir::HostTensor> arguments;
  for (const ir::Argument& a : step.arguments()) {
    const ir::TensorType& type = step.type(a.value);
    const ir::PersistentTensor* weight = module->FindTensor(a.name);
    if (a.kind == ir::ArgumentKind::kParameter) {
      arguments.push_back(weight->initial);
    } else if (a.kind == ir::ArgumentKind::kScalar) {
      arguments.push_back(F32({}, {1}));
    } else {
      arguments.push_back(ir::HostTensor::Zeros(type));
    }
  }
  const auto results = ir::Evaluate(step, arguments);
  EXPECT_TRUE(results.ok()) << results.status().ToString();
  for (size_t i = 0; results.ok() && i < step.results().size(); ++i) {
    if (step.results()[i].name == "w") return Numbers((*results)[i]);
  }
  ADD_FAILURE() << "no gradient of w";
  return {};
}

// Where the slope of a formula is infinite or 0 * infinity, the gradient is 0: training goes on.
TEST(OperatorEdges, GradientsAreFiniteAtZero) {
  EXPECT_THAT(
      GradientOfW("g (float[3] x) => (float y) <float[3] w = {0, 1, 2}, float[3] b = {0, 2, "
                  "3}> { p = Pow(w, b) q = Add(p, x) y = ReduceSum <keepdims = 0> (q) }"),
      ElementsAre(0, 2, 12));
  EXPECT_THAT(
      GradientOfW("g (float[2] x) => (float y) <float[2,2] w = {0, 0, 3, 4}> { n = ReduceL2 "
                  "<axes = [1], keepdims = 0> (w) q = Add(n, x) y = ReduceSum <keepdims = 0> "
                  "(q) }",
                  17),
      ElementsAre(0, 0, ::testing::DoubleNear(0.6, 1e-6), ::testing::DoubleNear(0.8, 1e-6)));
}

// No label counts: loss 0, gradient 0.
TEST(OperatorEdges, AllLabelsIgnored) {
  const std::string loss =
      "g (float[2] x) => (float y) <float[2,3] w = {1, 2, 3, 4, 5, 6}, int64[2] labels = {-1, -1}> "
      "{ "
      "y = SoftmaxCrossEntropyLoss <ignore_index = -1> (w, labels) }";
  EXPECT_THAT(GradientOfW(loss), ElementsAre(0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Numbers(Results(loss, {{"x", F32({2}, {0, 0})}})[0]), ElementsAre(0));
}

// Equal operands share, bounds of Clip are alike.
TEST(OperatorEdges, Ties) {
  const auto shares = [](const std::string& op) {
    return GradientOfW(
        "g (float[3] x) => (float y) <float[3] w = {1, 2, 3}, float[3] b = {2, 2, 2}> "
        "{ m = " +
        op + "(w, b) q = Add(m, x) y = ReduceSum <keepdims = 0> (q) }");
  };
  EXPECT_THAT(shares("Max"), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(shares("Min"), ElementsAre(1, 0.5, 0));
  EXPECT_THAT(
      GradientOfW("g (float[4] x) => (float y) <float[4] w = {0, 1, 2, 3}, float low = {0}, "
                  "float high = {2}> { m = Clip(w, low, high) q = Add(m, x) y = ReduceSum "
                  "<keepdims = 0> (q) }"),
      ElementsAre(0, 1, 0, 0));
}

TEST(OperatorEdges, DropoutThatTheFileSwitchesOffIsNoted) {
  const auto model = MustLoad(GraphModel(
      "g (float[3] x) => (float y) <float[3] w = {1, 2, 3}, float r = {0.5}, bool t = {0}> { p = "
      "Mul(w, x) d = Dropout(p, r, t) y = ReduceSum <keepdims = 0> (d) }"));
  Diagnostics diagnostics;
  MustImport(*model, TrainOn("y"), &diagnostics);
  EXPECT_THAT(diagnostics.Render(), HasSubstr("training drops out all the same"));
}

TEST(OperatorEdges, LongCyclesAreShort) {
  std::string nodes = "a0 = Neg(a4999) ";
  for (int i = 1; i < 5000; ++i)
    nodes += "a" + std::to_string(i) + " = Neg(a" + std::to_string(i - 1) + ") ";
  const std::string said =
      RefuseLoad(GraphModel("g (float[1] x) => (float[1] a9) { " + nodes + "}"));
  EXPECT_THAT(said, AllOf(HasSubstr("cycle"), HasSubstr("4992 more")));
  EXPECT_LT(said.size(), 1000u);
}

}  // namespace
}  // namespace hyper::onnx_frontend
