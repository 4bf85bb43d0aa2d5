// model.tie: parameters that a file holds several times are trained as one.
#include "frontend/onnx/tie_parameters.h"

#include "bug_cases.h"
#include "frontend/onnx/export.h"
#include "frontend/onnx/inspect.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ImportOptions Tied(std::vector<std::vector<std::string>> groups) {
  ImportOptions options = TrainOn("loss");
  for (auto& names : groups) {
    TieGroup group;
    for (size_t i = 0; i < names.size(); ++i) {
      group.locations.push_back({"s.yaml", 3, static_cast<int>(i) + 1});
    }
    group.names = std::move(names);
    options.ties.push_back(std::move(group));
  }
  return options;
}

// What an exporter makes of a language model whose head is its embedding: the head transposed.
constexpr const char* kUntied = R"(g (float[1,2] x, int64[2] ids) => (float loss)
  <float[3,2] e = {1,2,3,4,5,6}, float[2,3] head = {1,3,5,2,4,6}> {
    t = Gather(e, ids) y = MatMul(x, head) q = Mul(y, y)
    a = ReduceSum <keepdims = 0> (t) b = ReduceSum <keepdims = 0> (q) loss = Add(a, b) })";
constexpr const char* kProgram = R"(g (float[1,2] x, int64[2] ids) => (float loss)
  <float[3,2] e = {1,2,3,4,5,6}> {
    t = Gather(e, ids) head = Transpose(e) y = MatMul(x, head) q = Mul(y, y)
    a = ReduceSum <keepdims = 0> (t) b = ReduceSum <keepdims = 0> (q) loss = Add(a, b) })";

std::map<std::string, ir::HostTensor> Feed() {
  return {{"x", Floats({1, 2}, {7, 9})}, {"ids", Int64s({2}, {2, 0})}};
}

TEST(Tie, GradientsOfAllUsesAreSummed) {
  const auto program = Differentiate(GraphModel(kProgram), Feed());
  for (const bool head_first : {false, true}) {
    const std::string first = head_first ? "head" : "e";
    const auto tied =
        DifferentiateWith(Tied({{first, head_first ? "e" : "head"}}), GraphModel(kUntied), Feed());
    ASSERT_EQ(tied.model.forward.module.tensors.size(), 1u);
    EXPECT_EQ(tied.model.forward.module.tensors[0].name, first);
    EXPECT_EQ(tied.loss, program.loss);
    ASSERT_EQ(tied.gradients.size(), 1u);
    std::vector<float> want = program.gradients.at("e");
    if (head_first) want = {want[0], want[2], want[4], want[1], want[3], want[5]};
    EXPECT_EQ(tied.gradients.at(first), want);
  }
  const auto apart = Differentiate(GraphModel(kUntied), Feed());
  EXPECT_EQ(apart.gradients.size(), 2u);
  EXPECT_NE(apart.gradients.at("e"), program.gradients.at("e"));
}

TEST(Tie, WhateverHoldsTheCopies) {
  const auto d = DifferentiateWith(Tied({{"k", "w", "i", "c", "sq"}}),
                                   GraphModel(R"(g (float[2,2] x) => (float loss)
        <float[2,2] w = {1,2,3,5}, float[2,2] c = {1,2,3,5}, float[2,2] sq = {1,3,2,5}> {
          i = Identity(w) k = Constant <value: tensor = float[2,2] {1,2,3,5}> ()
          s = Size(x) four = Constant <value_int = 4> () yes = Equal(s, four)
          v = If (yes) <then_branch = t () => (float[2,2] n) { n = MatMul(x, sq) },
                        else_branch = f () => (float[2,2] m) { m = Identity(x) }>
          ka = MatMul(x, k) wa = MatMul(x, w) ia = MatMul(x, i) ca = Mul(x, c)
          sum = Sum(v, ka, wa, ia, ca) loss = ReduceSum <keepdims = 0> (sum) })"),
                                   {{"x", Floats({2, 2}, {1, 0, 0, 1})}});
  ASSERT_EQ(d.model.forward.module.tensors.size(), 1u);
  EXPECT_EQ(d.model.forward.module.tensors[0].name, "k");
  EXPECT_THAT(d.loss, ElementsAre(11 * 4 + 6));
  // Four products with the identity matrix, and one taken elementwise.
  EXPECT_THAT(d.gradients.at("k"), ElementsAre(5, 4, 4, 5));
  EXPECT_TRUE(d.model.plan.Find("k")->tied[3].transposed);
  EXPECT_FALSE(d.model.plan.Find("k")->tied[2].transposed);
}

TEST(Tie, AnExportWritesTheValueToAllPlaces) {
  TempDir dir;
  const std::string graph = R"(g (float[1,2] x, int64[2] ids) => (float loss, float[2,3] head)
    <float[3,2] e = {1,2,3,4,5,6}, float[2,3] head = {1,3,5,2,4,6}> {
      k = Constant <value: tensor = float[2,3] {1,3,5,2,4,6}> () i = Identity(e)
      t = Gather(e, ids) u = Gather(i, ids) y = MatMul(x, head) z = MatMul(x, k)
      q = Sum(y, z) a = ReduceSum <keepdims = 0> (t) b = ReduceSum <keepdims = 0> (q)
      c = ReduceSum <keepdims = 0> (u) loss = Sum(a, b, c) })";
  const auto model = MustLoad(GraphModel(graph));
  const ImportedModel imported = MustImport(*model, Tied({{"e", "k", "head", "i"}}));
  ASSERT_EQ(imported.forward.module.tensors.size(), 1u);
  const auto stripped = StripWeights(*model, imported.plan);
  ASSERT_TRUE(stripped.ok()) << stripped.status().message();
  const auto value = Floats({3, 2}, {10, 20, 30, 40, 50, 60});
  ASSERT_TRUE(ExportTrained(*stripped, {{"e", value}}, dir.File("o.onnx")).ok());
  Diagnostics diagnostics;
  const auto loaded = LoadModel(dir.File("o.onnx"), {}, &diagnostics);
  ASSERT_TRUE(loaded.ok()) << diagnostics.Render();
  for (const char* name : {"k", "head"}) {
    EXPECT_TRUE((*loaded)->FindTensor(name)->value == Floats({2, 3}, {10, 30, 50, 20, 40, 60}));
  }
  for (const char* name : {"e", "i"}) EXPECT_TRUE((*loaded)->FindTensor(name)->value == value);
  // It can be tied and trained again.
  const ImportedModel again = MustImport(**loaded, Tied({{"e", "k", "head", "i"}}));
  EXPECT_EQ(again.forward.module.tensors.size(), 1u);
  const auto results = Evaluated(again, "eval", Feed());
  EXPECT_TRUE(results[1] == Floats({2, 3}, {10, 30, 50, 20, 40, 60}));
}

TEST(Tie, RulesKnowAllNames) {
  ImportOptions options = Tied({{"e", "head"}});
  options.rules = {{"hea?", false, {}}};
  const auto model = MustLoad(GraphModel(kUntied));
  Diagnostics diagnostics;
  const ParameterPlan plan = PlanParameters(*model, options, &diagnostics);
  EXPECT_FALSE(diagnostics.has_errors()) << diagnostics.Render();
  EXPECT_EQ(plan.tensors.size(), 1u);
  EXPECT_EQ(plan.Find("e")->kind, ir::ArgumentKind::kFrozen);
  EXPECT_THAT(plan.Find("e")->reason, HasSubstr("frozen by 'hea?'; tied: head (transposed)"));
}

TEST(Tie, SecondNamesWork) {
  const auto d = DifferentiateWith(
      Tied({{"lm.weight", "e"}}),
      [] {
        onnx::ModelProto model = GraphModel(kUntied);
        auto* graph = model.mutable_graph();
        graph->mutable_initializer(1)->set_name("onnx::MatMul_9");
        graph->mutable_node(1)->set_input(1, "onnx::MatMul_9");
        graph->mutable_node(1)->set_name("/lm/MatMul");
        return model;
      }(),
      Feed());
  ASSERT_EQ(d.model.forward.module.tensors.size(), 1u);
  EXPECT_EQ(d.model.forward.module.tensors[0].name, "onnx::MatMul_9");
  EXPECT_EQ(d.model.forward.module.tensors[0].alias, "lm.weight");
}

TEST(Tie, WhatCannotBeTiedIsNamedAtItsPlace) {
  const auto model = MustLoad(GraphModel(R"(g (float[1,2] x) => (float loss)
    <float[2,3] a = {1,2,3,4,5,6}, float[3,2] b = {1,4,2,5,3,7}, float[2,3] c = {1,2,3,4,5,6},
     double[2,3] d = {1,2,3,4,5,6}, float[6] f = {1,2,3,4,5,6}, float[2] s = {1,2},
     float[2,2] m = {1,2,3,4}, float[2,2] n = {1,3,2,5}, int64[2] i = {1,2}> {
       h = BatchNormalization(x, s, s, s, s) p = MatMul(h, a) q = MatMul(x, c) u = MatMul(x, m)
       v = MatMul(u, n) w = MatMul(p, b) r = Sum(w, v) l = ReduceSum <keepdims = 0> (r)
       loss = Identity(l) dd = Neg(d) ff = Neg(f) })"));
  struct Case {
    std::vector<std::vector<std::string>> ties;
    std::string place;
    std::vector<std::string> texts;
  };
  const std::vector<Case> cases = {
      {{{"a", "B"}}, "s.yaml:3:2", {"'B' is none of the", "did you mean 'a', 'b' or 'c'?"}},
      {{{"a", "b"}},
       "s.yaml:3:2",
       {"element [2,1] is 7, in 'a' transposed 6 (1 of 6 elements "
        "differs)",
        "bit for bit"}},
      {{{"m", "n"}}, "s.yaml:3:2", {"element [1,1] is 5, in 'm' transposed 4"}},
      {{{"a", "f"}},
       "s.yaml:3:2",
       {"'f' is f32[6], 'a' is f32[2,3]; expected f32[2,3] or f32[3,2]"}},
      {{{"a", "d"}}, "s.yaml:3:2", {"'d' is f64[2,3]"}},
      {{{"i", "a"}}, "s.yaml:3:1", {"'i' is none of the"}},
      {{{"a", "loss"}}, "s.yaml:3:2", {"'loss' is none of the"}},
      {{{"a", "s@h"}}, "s.yaml:3:2", {"'s@h' is no parameter: running statistic"}},
      {{{"a", "c"}, {"m", "a"}}, "s.yaml:3:2", {"'a' is the tensor 'a', which is tied as 'a'"}},
  };
  for (const Case& c : cases) {
    Diagnostics diagnostics;
    (void)PlanParameters(*model, Tied(c.ties), &diagnostics);
    const std::string text = diagnostics.Render();
    EXPECT_EQ(diagnostics.error_count(), 1) << text;
    EXPECT_THAT(text, HasSubstr(c.place + ": error: model.tie: "));
    for (const std::string& part : c.texts) EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Tie, RepeatsAreFoundBitForBit) {
  const auto a = Floats({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(RepeatOf(a, Floats({2, 2}, {1, 2, 3, 4})), Repeat::kSame);
  EXPECT_EQ(RepeatOf(a, Floats({2, 2}, {1, 3, 2, 4})), Repeat::kTransposed);
  EXPECT_EQ(RepeatOf(a, Floats({2, 2}, {1, 3, 2, 5})), Repeat::kNot);
  EXPECT_EQ(RepeatOf(a, Floats({4}, {1, 2, 3, 4})), Repeat::kNot);
  EXPECT_EQ(RepeatOf(Floats({1}, {0.0F}), Floats({1}, {-0.0F})), Repeat::kNot);
  for (const ir::DType dtype : {ir::DType::kF16, ir::DType::kBF16, ir::DType::kF64}) {
    std::vector<double> values;
    std::vector<double> swapped(40 * 70);
    for (int i = 0; i < 40 * 70; ++i) values.push_back(i % 128);
    for (int r = 0; r < 40; ++r) {
      for (int c = 0; c < 70; ++c) {
        swapped[static_cast<size_t>(c * 40 + r)] = values[static_cast<size_t>(r * 70 + c)];
      }
    }
    const auto made = [&](ir::Dims dims, const std::vector<double>& v) {
      return ConvertTensor(ir::HostTensor::FromVector(ir::DType::kF64, std::move(dims), v), dtype);
    };
    const auto x = made({40, 70}, values);
    EXPECT_EQ(RepeatOf(x, made({70, 40}, swapped)), Repeat::kTransposed);
    swapped.back() = 99;
    EXPECT_EQ(RepeatOf(x, made({70, 40}, swapped)), Repeat::kNot);
  }
}

TEST(Tie, InspectSuggestsTheLine) {
  const auto report = [](onnx::ModelProto model) { return BuildReport(*MustLoad(model), {}); };
  onnx::ModelProto untied = GraphModel(kUntied);
  untied.mutable_graph()->mutable_initializer(1)->set_name("onnx::MatMul_163");
  untied.mutable_graph()->mutable_node(1)->set_input(1, "onnx::MatMul_163");
  ModelReport r = report(untied);
  ASSERT_EQ(r.tensors.size(), 2u);
  EXPECT_THAT(ReportText(r), HasSubstr("bit for bit"));
  EXPECT_THAT(r.notes, testing::Contains(HasSubstr("model: {tie: [[e, \"onnx::MatMul_163\"]]}")));
  // The name that says something comes first, whatever the order of the file.
  std::swap(*untied.mutable_graph()->mutable_initializer(0),
            *untied.mutable_graph()->mutable_initializer(1));
  EXPECT_THAT(report(untied).notes,
              testing::Contains(HasSubstr("tie: [[e, \"onnx::MatMul_163\"]]")));
  // Once tied, nothing is left to say, and the listing tells.
  ImportOptions options = Tied({{"e", "onnx::MatMul_163"}});
  r = BuildReport(*MustLoad(untied), options);
  EXPECT_THAT(ReportText(r),
              AllOf(Not(HasSubstr("bit for bit")), HasSubstr("tied: onnx::MatMul_163")));
  EXPECT_THAT(ReportJson(r), HasSubstr("\"transposed\": true"));
  // Fresh norms are all ones and zeros, other tensors differ somewhere.
  EXPECT_THAT(report(GraphModel(R"(g (float[1,2] x) => (float[1,2] y)
    <float[2] s = {1,1}, float[2] t = {1,1}, float[2,2] v = {0.1,0.2,0.3,0.4},
     float[2,2] w = {0.1,0.2,0.35,0.4}> { a = Mul(x, s) b = Mul(a, t) c = MatMul(b, v)
       y = MatMul(c, w) })"))
                  .notes,
              testing::Each(Not(HasSubstr("bit for bit"))));
}

}  // namespace
}  // namespace hyper::onnx_frontend
