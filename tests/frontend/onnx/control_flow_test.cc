// If, Loop and Scan that vanish at compile time, what they capture, and how the others are refused.
#include <cmath>
#include <set>

#include "frontend/onnx/refusal.h"
#include "ir/training.h"
#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::HostTensor F32(ir::Dims dims, std::vector<float> values) {
  return ir::HostTensor::FromVector(ir::DType::kF32, std::move(dims), values);
}

std::vector<float> Values(const ir::HostTensor& t) {
  return {t.as<float>().begin(), t.as<float>().end()};
}

TEST(Refusal, TextsAreDistinctAndReadBack) {
  for (Refusal a : AllRefusals()) {
    ASSERT_FALSE(RefusalText(a).empty());
    EXPECT_EQ(RefusalOf("node 'x': " + RefusalMessage(a, "detail")), a);
    for (Refusal b : AllRefusals()) {
      EXPECT_TRUE(a == b || RefusalText(a).find(RefusalText(b)) == std::string_view::npos);
    }
  }
  EXPECT_EQ(RefusalOf("axis 4 of a tensor of rank 2"), std::nullopt);
  EXPECT_EQ(RefusalOf(OperatorRefusal("", "NonZero").message()), Refusal::kDataShapes);
  EXPECT_EQ(RefusalOf(OperatorRefusal("ai.onnx.ml", "Scaler").message()), Refusal::kNotTraining);
  EXPECT_EQ(RefusalOf(OperatorRefusal("my.domain", "Op").message()), Refusal::kUnknownOperator);
}

// An initializer that only a branch reads is a parameter and gets the gradient of the branch.
TEST(ControlFlow, CapturedWeightsAreTrained) {
  const auto model = MustLoad(GraphModel(R"(g (float[2,3] x) => (float l)
      <float[3,2] fc_weight = {1, 2, 3, 4, 5, 6}> {
    s = Size(x) six = Constant <value_int = 6> () c = Equal(s, six)
    y = If (c) <then_branch = t () => (float[2,2] a) { a = MatMul(x, fc_weight) },
                else_branch = e () => (float[2,2] b) { b = Relu(x) }>
    l = ReduceSum <keepdims = 0> (y) })"));
  const ImportedModel m = MustImport(*model, TrainOn("l"));
  const ParameterDecision* d = m.plan.Find("fc_weight");
  ASSERT_NE(d, nullptr);
  EXPECT_EQ(d->kind, ir::ArgumentKind::kParameter) << d->reason;
  const auto r = Evaluated(m, "eval", {{"x", F32({2, 3}, {1, 0, 0, 0, 1, 0})}});
  EXPECT_EQ(r.back().ElementAsDouble(0), 10);  // 1 + 2 + 3 + 4
  Diagnostics diagnostics;
  std::vector<std::string> unreached;
  auto module = ir::BuildTrainingModule(m.forward, {}, false, &diagnostics, &unreached);
  ASSERT_TRUE(module.ok()) << module.status().message();
  EXPECT_TRUE(unreached.empty());
}

TEST(ControlFlow, RuntimeConditionIsRefusedByName) {
  const auto model = MustLoad(GraphModel(R"(g (float[3] x, bool c) => (float[3] y) {
    y = If (c) <then_branch = t () => (float[3] a) { a = Neg(x) },
                else_branch = e () => (float[3] b) { b = Relu(x) }> })"));
  EXPECT_THAT(RefuseImport(*model, {}),
              AllOf(HasSubstr("node 'y' (If)"), HasSubstr("control flow that depends on data"),
                    HasSubstr("'c'"), HasSubstr("model.bind")));
}

// Both branches use the names of the other one, and of a nested If.
TEST(ControlFlow, BranchesHaveNamesOfTheirOwn) {
  const auto model = MustLoad(GraphModel(R"(g (float[2] x) => (float[2] z) {
    yes = Constant <value = bool {1}> () no = Constant <value = bool {0}> ()
    y = If (yes) <
      then_branch = t () => (float[2] a) {
        k = If (no) <then_branch = t2 () => (float[2] m) { m = Exp(x) },
                     else_branch = e2 () => (float[2] n) { n = Neg(x) }>
        a = Add(k, x) },
      else_branch = e () => (float[2] b) { k = Exp(x) b = Add(k, k) }>
    z = If (no) <
      then_branch = t3 () => (float[2] a) { a = Exp(y) },
      else_branch = e3 () => (float[2] b) { k = Add(x, x) b = Add(k, y) }> })"));
  const auto r = Evaluated(MustImport(*model, {}), "eval", {{"x", F32({2}, {1, 2})}});
  EXPECT_THAT(Values(r[0]), ElementsAre(2, 4));
}

// A function of its own opset, called inside a branch alone.
TEST(ControlFlow, FunctionsCalledInBranchesKeepTheirOpset) {
  const auto model = MustLoad(ParseModel(R"(<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
    g (float[2,3] x) => (float[2,3] y) {
      c = Constant <value = bool {0}> ()
      y = If (c) <then_branch = t () => (float[2,3] a) { a = Relu(x) },
                  else_branch = e () => (float[2,3] b) { b = pkg.f(x) }> }
    <domain: "pkg", opset_import: ["" : 11]> f (u) => (v) { v = Softmax(u) })"));
  // Softmax-11 without an axis normalizes everything behind the first dim: the same here; one of 13
  // too. Rank 3 tells them apart.
  const auto flat = MustLoad(ParseModel(R"(<ir_version: 8, opset_import: ["" : 17, "pkg" : 1]>
    g (float[1,2,2] x) => (float[1,2,2] y) {
      c = Constant <value = bool {0}> ()
      y = If (c) <then_branch = t () => (float[1,2,2] a) { a = Relu(x) },
                  else_branch = e () => (float[1,2,2] b) { b = pkg.f(x) }> }
    <domain: "pkg", opset_import: ["" : 11]> f (u) => (v) { v = Softmax(u) })"));
  auto r = Evaluated(MustImport(*model, {}), "eval", {{"x", F32({2, 3}, {0, 0, 0, 1, 1, 1})}});
  for (float v : Values(r[0])) EXPECT_NEAR(v, 1.0 / 3, 1e-6);
  r = Evaluated(MustImport(*flat, {}), "eval", {{"x", F32({1, 2, 2}, {1, 1, 1, 1})}});
  for (float v : Values(r[0])) EXPECT_NEAR(v, 0.25, 1e-6);
}

TEST(ControlFlow, LoopsCarryScanAndCapture) {
  // h <- h * w + i, three times; scan outputs are the squares of h.
  const auto model = MustLoad(GraphModel(R"(g (float[2] x) => (float[2] h, float[3,2] s)
      <float[2] w = {2, 3}, bool go = {1}> {
    n = Constant <value_int = 3> ()
    h, s = Loop (n, go, x) <body = b (int64 i, bool c, float[2] u) => (bool d, float[2] v, float[2] q) {
      d = Identity(c) f = Cast <to = 1> (i) p = Mul(u, w) v = Add(p, f) q = Mul(v, v) }> })"));
  const auto r = Evaluated(MustImport(*model, {}), "eval", {{"x", F32({2}, {1, 1})}});
  // 1: 2, 3; 2: 5, 10; 3: 12, 32
  EXPECT_THAT(Values(r[0]), ElementsAre(12, 32));
  EXPECT_THAT(Values(r[1]), ElementsAre(4, 9, 25, 100, 144, 1024));
}

TEST(ControlFlow, LoopsEndByAConditionOfTheirOwn) {
  const auto model = MustLoad(GraphModel(R"(g (float[1] x) => (float[1] h)
      <bool go = {1}, int64 three = {3}> {
    h = Loop ("", go, x) <body = b (int64 i, bool c, float[1] u) => (bool d, float[1] v) {
      d = Less(i, three) v = Add(u, u) }> })"));
  const auto r = Evaluated(MustImport(*model, {}), "eval", {{"x", F32({1}, {1})}});
  EXPECT_THAT(Values(r[0]), ElementsAre(16));  // iterations 0, 1, 2 and the one that ends it
}

TEST(ControlFlow, LoopsWithoutIterationsHandThrough) {
  const auto model = MustLoad(GraphModel(R"(g (float[2] x) => (float[2] h, float[0,2] s)
      <bool stop = {0}, int64 n = {5}> {
    h, s = Loop (n, stop, x) <body = b (int64 i, bool c, float[2] u) => (bool d, float[2] v, float[2] q) {
      d = Identity(c) v = Add(u, u) q = Neg(u) }> })"));
  const auto r = Evaluated(MustImport(*model, {}), "eval", {{"x", F32({2}, {1, 2})}});
  EXPECT_THAT(Values(r[0]), ElementsAre(1, 2));
  EXPECT_EQ(r[1].type().dims, (ir::Dims{0, 2}));
}

TEST(ControlFlow, RuntimeTripCountsAndConditionsAreRefused) {
  const auto trips = MustLoad(GraphModel(R"(g (float[1] x, int64 n) => (float[1] h) {
    h = Loop (n, "", x) <body = b (int64 i, bool c, float[1] u) => (bool d, float[1] v) {
      d = Identity(c) v = Add(u, u) }> })"));
  EXPECT_THAT(RefuseImport(*trips, {}),
              AllOf(HasSubstr("(Loop)"), HasSubstr("the trip count ('n')"),
                    HasSubstr("control flow that depends on data"), HasSubstr("model.bind")));
  const auto condition = MustLoad(GraphModel(R"(g (float x) => (float h)
      <bool go = {1}, int64 n = {4}, float limit = {9}> {
    h = Loop (n, go, x) <body = b (int64 i, bool c, float u) => (bool d, float v) {
      v = Add(u, u) d = Less(v, limit) }> })"));
  EXPECT_THAT(RefuseImport(*condition, {}),
              AllOf(HasSubstr("the condition ('d') after iteration 0"),
                    HasSubstr("control flow that depends on data")));
}

TEST(ControlFlow, ExplosionsAreRefused) {
  const auto wide = MustLoad(GraphModel(R"(g (float[1] x) => (float[1] h)
      <int64 n = {9000000000000000000}> {
    h = Loop (n, "", x) <body = b (int64 i, bool c, float[1] u) => (bool d, float[1] v) {
      d = Identity(c) v = Add(u, u) }> })"));
  EXPECT_THAT(RefuseImport(*wide, {}), HasSubstr("unrolling 9000000000000000000 steps"));
  // A condition that is handed on ends nothing: no step is made to find that out.
  const auto handed_on = MustLoad(GraphModel(R"(g (float[1] x) => (float[1] h)
      <int64 n = {9000000000000000000}, bool go = {1}> {
    h = Loop (n, go, x) <body = b (int64 i, bool c, float[1] u) => (bool d, float[1] v) {
      e = Identity(c) d = Identity(e) v = Add(u, u) }> })"));
  EXPECT_THAT(RefuseImport(*handed_on, {}), HasSubstr("unrolling 9000000000000000000 steps"));
  const auto endless = MustLoad(GraphModel(R"(g (float[1] x) => (float[1] h) <bool go = {1}> {
    h = Loop ("", go, x) <body = b (int64 i, bool c, float[1] u) => (bool c, float[1] v) {
      v = Add(u, u) }> })"));
  EXPECT_THAT(RefuseImport(*endless, {}), HasSubstr("passes on the condition it gets"));
  const auto nested = MustLoad(GraphModel(R"(g (float[1] x) => (float[1] h)
      <int64 n = {2000}, int64 m = {200000}> {
    h = Loop (n, "", x) <body = b (int64 i, bool c, float[1] u) => (bool d, float[1] v) {
      d = Identity(c)
      v = Loop (m, "", u) <body = b2 (int64 i2, bool c2, float[1] u2) => (bool d2, float[1] v2) {
        d2 = Identity(c2) k = Identity(u2) v2 = Identity(k) }> }> })"));
  EXPECT_THAT(RefuseImport(*nested, {}), HasSubstr("unrolling"));
}

// Extents of a file decide how much is unrolled, so they are checked before anything is made.
TEST(ControlFlow, HugeSequencesAreRefused) {
  const auto split = MustLoad(GraphModel(R"(g (float[90000000000,1] x) => (float[1,1] y)
      <int64 zero = {0}> { s = SplitToSequence(x) y = SequenceAt(s, zero) })"));
  EXPECT_THAT(RefuseImport(*split, {}), HasSubstr("parts"));
  const auto recurrent = MustLoad(GraphModel(R"(
      g (float[90000000000,1,1] x, float[1,1,1] w, float[1,1,1] r) => (float[1,1,1] h) {
        y, h = RNN <hidden_size = 1> (x, w, r) })"));
  EXPECT_THAT(RefuseImport(*recurrent, {}), HasSubstr("90000000000 time steps"));
  const auto scan = MustLoad(GraphModel(R"(
      g (float[1,90000000000] x) => (float[90000000000] s) {
        s = Scan (x) <num_scan_inputs = 1, scan_input_axes = [1],
            body = b (float[1] u) => (float v) { v = ReduceSum <keepdims = 0> (u) }> })"));
  EXPECT_THAT(RefuseImport(*scan, {}), HasSubstr("unrolling 90000000000 steps"));
  const auto empty = MustLoad(GraphModel(R"(g (float[1] x) => (float[1] h) <int64[0] n = {}> {
    h = Loop (n, "", x) <body = b (int64 i, bool c, float[1] u) => (bool d, float[1] v) {
      d = Identity(c) v = Add(u, u) }> })"));
  EXPECT_THAT(RefuseImport(*empty, {}), HasSubstr("one trip count is expected"));
}

TEST(ControlFlow, ErrorsInsideBodiesAreToldOnce) {
  const auto model = MustLoad(GraphModel(R"(g (float[2] x) => (float[2] h) <int64 n = {4}> {
    h = Loop (n, "", x) <body = b (int64 i, bool c, float[2] u) => (bool d, float[2] v) {
      d = Identity(c) k = NonZero(u) f = Cast <to = 1> (k) v = Add(u, u) }> })"));
  const std::string text = RefuseImport(*model, {});
  EXPECT_THAT(text, AllOf(HasSubstr("node 'k' (NonZero) of iteration 0"),
                          HasSubstr("shapes that depend on data")));
  EXPECT_EQ(text.find("iteration 1"), std::string::npos) << text;
}

TEST(ControlFlow, ScansOverAxesInBothDirections) {
  // Running sums of columns from the right; the output is stacked in front, backwards.
  const auto model = MustLoad(GraphModel(R"(g (float[2,3] x) => (float[2] h, float[2,3] s)
      <float[2] zero = {0, 0}> {
    h, s = Scan (zero, x) <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
        scan_output_axes = [-1], scan_output_directions = [1],
        body = b (float[2] u, float[2] r) => (float[2] v, float[2] q) {
          v = Add(u, r) q = Identity(v) }> })"));
  const auto r =
      Evaluated(MustImport(*model, {}), "eval", {{"x", F32({2, 3}, {1, 2, 4, 10, 20, 40})}});
  EXPECT_THAT(Values(r[0]), ElementsAre(7, 70));
  EXPECT_THAT(Values(r[1]), ElementsAre(7, 6, 4, 70, 60, 40));
}

TEST(ControlFlow, WeightsInsideSubgraphsAreConstantsWithANote) {
  const auto model =
      MustLoad(GraphModel(R"(g (float[2] x) => (float l) <float[2] w = {1, 2}, int64 n = {2}> {
    y = Mul(x, w)
    h = Loop (n, "", y) <body = b (int64 i, bool c, float[2] u) => (bool d, float[2] v)
        <float[2] inside = {1, 3}> { d = Identity(c) v = Mul(u, inside) }>
    l = ReduceSum <keepdims = 0> (h) })"));
  Diagnostics diagnostics;
  const ImportedModel m = MustImport(*model, TrainOn("l"), &diagnostics);
  EXPECT_THAT(diagnostics.Render(), HasSubstr("inside: not trained"));
  EXPECT_EQ(m.plan.Find("inside"), nullptr);
  const auto r = Evaluated(m, "eval", {{"x", F32({2}, {1, 1})}});
  EXPECT_EQ(r.back().ElementAsDouble(0), 19);
}

// As PyTorch exports chunk, unbind and stack.
TEST(Sequences, VanishWhereTheyAreLists) {
  const auto model =
      MustLoad(GraphModel(R"(g (float[2,5] x) => (float[2,2] a, float[5,2] b, int64 n)
      <int64 two = {2}, int64 one = {1}, int64 last = {-1}> {
    chunks = SplitToSequence <axis = 1> (x, two)
    a = SequenceAt(chunks, one)
    n = SequenceLength(chunks)
    rows = SplitToSequence <axis = 0, keepdims = 0> (x)
    r0 = SequenceAt(rows, last) r1 = SequenceAt(rows, last)
    pair = SequenceConstruct(r0, r1)
    b = ConcatFromSequence <axis = -1, new_axis = 1> (pair) })"));
  const auto r = Evaluated(MustImport(*model, {}), "eval",
                           {{"x", F32({2, 5}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})}});
  EXPECT_THAT(Values(r[0]), ElementsAre(2, 3, 7, 8));
  EXPECT_THAT(Values(r[1]), ElementsAre(5, 5, 6, 6, 7, 7, 8, 8, 9, 9));
  EXPECT_EQ(r[2].ElementAsInt(0), 3);
}

TEST(Sequences, OthersAreRefusedForOneReason) {
  const auto at = MustLoad(GraphModel(R"(g (float[2,5] x, int64 i) => (float[1,5] a) {
    rows = SplitToSequence(x) a = SequenceAt(rows, i) })"));
  EXPECT_THAT(RefuseImport(*at, {}),
              AllOf(HasSubstr("(SequenceAt)"), HasSubstr("sequences and optionals")));
  const auto out = MustLoad(GraphModel(R"(g (float[2,5] x) => (seq(float[1,5]) rows) {
    rows = SplitToSequence(x) })"));
  EXPECT_THAT(RefuseImport(*out, {}), HasSubstr("sequences and optionals"));
  const auto other = MustLoad(GraphModel(R"(g (float[2,5] x) => (float[2] y) {
    rows = SplitToSequence(x) y = Relu(rows) })"));
  EXPECT_THAT(RefuseImport(*other, {}),
              AllOf(HasSubstr("(Relu)"), HasSubstr("sequences and optionals")));
}

}  // namespace
}  // namespace hyper::onnx_frontend
