// Public bug reports about optional operands, shapes and operator versions; the test names begin
// with the number of the case (OP2, 3, 4, 7 and 8 are in spatial_test.cc):
//   OS1 onnx#3564 · OS2 onnxruntime#19427 · OS3 onnx-mlir#1580 · OS4 onnxruntime#19434 ·
//   OS5 onnx#7735 · OS6 onnxruntime#7260 · OP1 tvm#20183 · OP5 onnx#5766 · OP6 onnx#5466 ·
//   OP9 onnx#4548 · OP10 onnx#7865
#include <cmath>
#include <numeric>

#include "bug_cases.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(BugCasesOperator, OS1ClipWithoutAMinimum) {
  const auto d = Differentiate(
      GraphModel(R"(g (float[3] x) => (float loss) <float[3] w = {-5, 1, 2}, float c = {1.5}> {
        y = Clip(w, , c) loss = ReduceSum <keepdims = 0> (y) })"),
      {});
  EXPECT_THAT(d.loss, ElementsAre(-2.5F));
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(1, 1, 0));
}

TEST(BugCasesOperator, OS2LayerNormWithOneOutputHasGradients) {
  const auto d = Differentiate(
      GraphModel(R"(g (float[1,2] x) => (float loss) <float[2] s = {1, 2}, float[2] b = {0, 0}> {
        y = LayerNormalization <epsilon = 0.0> (x, s, b) loss = ReduceSum <keepdims = 0> (y) })"),
      {{"x", Floats({1, 2}, {3, 5})}});
  EXPECT_THAT(d.gradients.at("s"), ElementsAre(-1, 1));
  EXPECT_THAT(d.gradients.at("b"), ElementsAre(1, 1));
}

TEST(BugCasesOperator, OS3MatMulOfVectors) {
  const auto d = Differentiate(
      GraphModel("g (float[2] x) => (float loss) <float[2] a = {2, 3}, float[2] b = {5, 7}> "
                 "{ loss = MatMul(a, b) }"),
      {});
  EXPECT_THAT(d.loss, ElementsAre(31));
  EXPECT_THAT(d.model.forward.module.Find("eval")
                  ->type(d.model.forward.module.Find("eval")->results()[0].value)
                  .dims,
              IsEmpty());
  EXPECT_THAT(d.gradients.at("a"), ElementsAre(5, 7));
  EXPECT_THAT(d.gradients.at("b"), ElementsAre(2, 3));
  const auto matrix = Differentiate(
      GraphModel(R"(g (float[2] x) => (float loss) <float[2] v = {2, 3}, float[2,2] m = {1,2,3,4}>
        { l = MatMul(v, m) r = MatMul(m, v) s = Add(l, r) loss = ReduceSum <keepdims = 0> (s) })"),
      {});
  EXPECT_THAT(matrix.loss, ElementsAre(2 + 9 + 4 + 12 + 2 + 6 + 6 + 12));
  EXPECT_THAT(matrix.gradients.at("v"), ElementsAre(3 + 4, 7 + 6));
}

TEST(BugCasesOperator, OS4AScalarInputTakesNoVector) {
  const auto model =
      MustLoad(GraphModel("g (int64 a, float[3,2] x) => (float[2] y) { y = Gather(x, a) }"));
  ImportOptions options;
  options.bind["a"] = {Int64s({1}, {1}), {}};
  EXPECT_THAT(RefuseImport(*model, options), HasSubstr("'a'"));
  options.bind["a"] = {Int64s({}, {1}), {}};
  const auto r =
      Evaluated(MustImport(*model, options), "eval", {{"x", Floats({3, 2}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_THAT(r[0].as<float>(), ElementsAre(3, 4));
}

TEST(BugCasesOperator, OS4ALossMayBeAVectorOfOne) {
  const auto d = Differentiate(GraphModel("g (float[2] x) => (float[1] loss) <float[2] w = {2, 3}> "
                                          "{ y = Mul(x, w) loss = ReduceSum <keepdims = 1> (y) }"),
                               {{"x", Floats({2}, {5, 7})}});
  EXPECT_THAT(d.loss, ElementsAre(31));
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(5, 7));
}

TEST(BugCasesOperator, OS5SliceOfNothing) {
  const auto r = Outputs(GraphModel(R"(g (float[0] x) => (float[n] y)
    <int64[1] start = {-1}, int64[1] end = {-9223372036854775807}, int64[1] step = {-1},
     int64[1] axis = {0}> { y = Slice(x, start, end, axis, step) })"),
                         {});
  ASSERT_EQ(r.size(), 1u);
  EXPECT_THAT(r[0].type().dims, ElementsAre(0));
  onnx::ModelProto negative = GraphModel("g (float[1] x) => (float[n] y) { y = Relu(x) }");
  negative.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_value(-2);  // -1 is how some exporters write an unknown extent
  EXPECT_THAT(RefuseLoad(negative), HasSubstr("has extent -2"));
}

TEST(BugCasesOperator, OS6WeightsAndInputsAsOutputsAreCopies) {
  const auto model =
      MustLoad(GraphModel("g (float[2] x) => (float[2] x, float[2] w) <float[2] w = {1, 2}> "
                          "{ t = Relu(x) }"));
  ImportedModel m = MustImport(*model, {});
  auto r = Evaluated(m, "eval", {{"x", Floats({2}, {5, 6})}});
  EXPECT_THAT(r[0].as<float>(), ElementsAre(5, 6));
  EXPECT_THAT(r[1].as<float>(), ElementsAre(1, 2));
  EXPECT_EQ(CountOps(*m.forward.module.Find("eval"), "copy"), 2);
  // It is the value of now, not that of the file.
  ASSERT_EQ(m.forward.module.tensors.size(), 1u);
  m.forward.module.tensors[0].initial = Floats({2}, {8, 9});
  r = Evaluated(m, "eval", {{"x", Floats({2}, {5, 6})}});
  EXPECT_THAT(r[1].as<float>(), ElementsAre(8, 9));
}

TEST(BugCasesOperator, OP1SoftmaxAndLogSoftmaxBefore13) {
  const auto sum = [](const std::string& op, int opset) {
    const auto r = Outputs(
        GraphModel("g (float[2,3,4] x) => (float[2,3,4] y) { y = " + op + "(x) }", opset), {});
    const auto values = r.at(0).as<float>();
    return std::accumulate(values.begin(), values.end(), 0.0);
  };
  EXPECT_NEAR(sum("Softmax", 11), 2, 1e-5);
  EXPECT_NEAR(sum("Softmax", 13), 6, 1e-5);
  EXPECT_NEAR(sum("LogSoftmax", 11), -24 * std::log(12), 1e-4);
  EXPECT_NEAR(sum("LogSoftmax", 13), -24 * std::log(4), 1e-4);
}

TEST(BugCasesOperator, OP1HardmaxBefore13) {
  const auto ones = [](int opset, const std::string& axis) {
    const auto r = Outputs(
        GraphModel("g (float[2,2,2] x) => (float[2,2,2] y) { y = Hardmax" + axis + " (x) }", opset),
        {{"x", Floats({2, 2, 2}, {1, 3, 3, 2, 5, 5, 4, 6})}});
    const auto values = r.at(0).as<float>();
    return std::vector<float>(values.begin(), values.end());
  };
  // One per flattened row: the first of the maxima.
  EXPECT_THAT(ones(11, ""), ElementsAre(0, 1, 0, 0, 0, 0, 0, 1));
  EXPECT_THAT(ones(11, " <axis = 2>"), ElementsAre(0, 1, 1, 0, 1, 0, 0, 1));
  EXPECT_THAT(ones(13, ""), ElementsAre(0, 1, 1, 0, 1, 0, 0, 1));
  EXPECT_THAT(ones(13, " <axis = 0>"), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
}

TEST(BugCasesOperator, OP5SplitIntoUnequalParts) {
  const auto graph = [](int extent) {
    return GraphModel("g (float[" + std::to_string(extent) +
                          "] x) => (float[p] a, float[q] b, float[r] c, float[s] d) "
                          "{ a, b, c, d = Split <num_outputs = 4> (x) }",
                      18);
  };
  const auto r = Outputs(graph(10), {});
  ASSERT_EQ(r.size(), 4u);
  EXPECT_THAT(r[0].type().dims, ElementsAre(3));
  EXPECT_THAT(r[3].type().dims, ElementsAre(1));
  EXPECT_THAT(RefuseImport(*MustLoad(graph(5)), {}), HasSubstr("Split"));
}

TEST(BugCasesOperator, OP6GroupNormScalesPerGroupThenPerChannel) {
  const auto run = [](int opset, const std::string& scale) {
    return Outputs(GraphModel("g (float[1,4,2] x) => (float[1,4,2] y) <" + scale +
                                  "> { y = GroupNormalization <num_groups = 2, epsilon = 0.0> "
                                  "(x, s, b) }",
                              opset),
                   {{"x", Floats({1, 4, 2}, {-1, 1, -1, 1, -1, 1, -1, 1})}});
  };
  const auto group = run(18, "float[2] s = {2, 3}, float[2] b = {0, 0}");
  EXPECT_THAT(group.at(0).as<float>(), ElementsAre(-2, 2, -2, 2, -3, 3, -3, 3));
  const auto channel = run(21, "float[4] s = {2, 3, 4, 5}, float[4] b = {0, 0, 0, 0}");
  EXPECT_THAT(channel.at(0).as<float>(), ElementsAre(-2, 2, -3, 3, -4, 4, -5, 5));
}

TEST(BugCasesOperator, OP9RepeatedPlacesOfAScatter) {
  const auto graph = [](const std::string& indices, const std::string& reduction) {
    return GraphModel(
        "g (float[3,2] x, int64[2,1] runtime) => (float loss) <float[2,2] u = {1, 2, 3, 4}" +
            std::string(", int64[2,1] known = {0, 0}> { y = ScatterND <reduction = \"") +
            reduction + "\"> (x, " + indices +
            ", u) z = Mul(y, y) loss = ReduceSum <keepdims = 0> (z) }",
        18);
  };
  // Undefined by ONNX, and known: refused with both updates.
  EXPECT_THAT(RefuseImport(*MustLoad(graph("known", "none")), {}),
              AllOf(HasSubstr("updates 0 and 1"), HasSubstr("reduction add")));
  const std::map<std::string, ir::HostTensor> inputs = {
      {"x", Floats({3, 2}, {10, 20, 30, 40, 50, 60})}, {"runtime", Int64s({2, 1}, {-1, 2})}};
  // Not known: the last one stays.
  const auto last = Differentiate(graph("runtime", "none"), inputs);
  EXPECT_THAT(last.loss, ElementsAre(100 + 400 + 900 + 1600 + 9 + 16));
  // add accumulates; the gradient of the updates is read from where they went.
  const auto sum = Differentiate(graph("known", "add"), inputs);
  EXPECT_THAT(sum.loss, ElementsAre(14 * 14 + 26 * 26 + 900 + 1600 + 2500 + 3600));
  EXPECT_THAT(sum.gradients.at("u"), ElementsAre(28, 52, 28, 52));
}

TEST(BugCasesOperator, OP10SoftcapComesBeforeTheMask) {
  onnx::ModelProto model = GraphModel(
      R"(g (float[1,1,1,1] q, float[1,1,2,1] k, float[1,1,2,1] v) => (float[a,b,c,d] y)
        <float[1,2] mask = {0, 0}> { y = Attention <softcap = 2.0> (q, k, v, mask) })",
      23);
  const float mask[] = {0, -INFINITY};
  auto* tensor = model.mutable_graph()->mutable_initializer(0);
  tensor->clear_float_data();
  tensor->set_raw_data(mask, sizeof(mask));
  const auto r = Outputs(model, {{"q", Floats({1, 1, 1, 1}, {1})},
                                 {"k", Floats({1, 1, 2, 1}, {1, 1})},
                                 {"v", Floats({1, 1, 2, 1}, {3, 1000})}});
  EXPECT_THAT(r.at(0).as<float>(), ElementsAre(3));
}

}  // namespace
}  // namespace hyper::onnx_frontend
