// Writing by index, pooling with indices and sequences of their own lengths: what the node tests of
// ONNX leave out, and what is refused.
#include "bug_cases.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::string& graph, int opset) {
  const auto model = MustLoad(GraphModel(graph, opset));
  return model == nullptr ? "not loaded" : RefuseImport(*model, {});
}

TEST(Scatter, ShorterIndicesLeaveTheRestOfX) {
  const auto r =
      Outputs(GraphModel(R"(g (float[2,3] x, int64[1,2] i) => (float[2,3] y)
    <float[1,2] u = {7, 8}> { y = ScatterElements <axis = 1, reduction = "mul"> (x, i, u) })",
                         18),
              {{"x", Floats({2, 3}, {1, 2, 3, 4, 5, 6})}, {"i", Int64s({1, 2}, {2, -2})}});
  EXPECT_THAT(r.at(0).as<float>(), ElementsAre(1, 16, 21, 4, 5, 6));
}

TEST(Scatter, ExtremaShareTheGradientOfTies) {
  const auto d = Differentiate(GraphModel(R"(g (int64[3] i) => (float loss)
    <float[2] x = {5, 1}, float[3] u = {5, 2, 2}> {
      y = ScatterElements <reduction = "max"> (x, i, u) z = Mul(y, y)
      loss = ReduceSum <keepdims = 0> (z) })",
                                          18),
                               {{"i", Int64s({3}, {0, 1, 1})}});
  EXPECT_THAT(d.loss, ElementsAre(29));
  EXPECT_THAT(d.gradients.at("x"), ElementsAre(5, 0));
  EXPECT_THAT(d.gradients.at("u"), ElementsAre(5, 2, 2));
}

TEST(Scatter, ProductsWithZerosHaveTheGradientOfTheOthers) {
  const auto d = Differentiate(GraphModel(R"(g (int64[5] i) => (float loss)
    <float[3] x = {3, 5, 7}, float[5] u = {0, 2, 0, 0, 4}> {
      y = ScatterElements <reduction = "mul"> (x, i, u) loss = ReduceSum <keepdims = 0> (y) })",
                                          18),
                               {{"i", Int64s({5}, {0, 0, 1, 1, 2})}});
  EXPECT_THAT(d.gradients.at("x"), ElementsAre(0, 0, 4));
  EXPECT_THAT(d.gradients.at("u"), ElementsAre(6, 0, 0, 0, 7));
}

TEST(Scatter, WrongShapesAndIndicesSayWhatFits) {
  EXPECT_THAT(Refusal(R"(g (float[3,2] x, int64[2,1] i, float[2,3] u) => (float[3,2] y) {
    y = ScatterND (x, i, u) })",
                      18),
              AllOf(HasSubstr("[2,3]"), HasSubstr("must be [2,2]")));
  EXPECT_THAT(Refusal(R"(g (float[3] x, float[2] u) => (float[3] y) <int64[2] i = {0, 3}> {
    y = ScatterElements (x, i, u) })",
                      18),
              HasSubstr("index 3 into a dim of 3"));
  EXPECT_THAT(Refusal(R"(g (float[3] x, float[2] u) => (float[3] y) <int64[2] i = {-1, 2}> {
    y = ScatterElements (x, i, u) })",
                      18),
              HasSubstr("write the same place [2]"));
  EXPECT_THAT(Refusal(R"(g (float[3,2] x, float[1] u) => (float[3,2] y) <int64[1,2] i = {0, 2}> {
    y = ScatterND (x, i, u) })",
                      18),
              HasSubstr("index 2 of tuple 0 into dim 1 of 2"));
}

// Flattened, (0, 5) would be another place that exists.
TEST(Scatter, TuplesOutsideNameNoOtherPlace) {
  for (const std::string op : {"ScatterND", "GatherND"}) {
    const bool writes = op == "ScatterND";
    const auto model =
        MustLoad(GraphModel("g (float[3,2] x, int64[1,2] i, float[1] u) => (float[" +
                                std::string(writes ? "3,2" : "1") + "] y) { y = " + op +
                                (writes ? "(x, i, u)" : "(x, i)") + " }",
                            13));
    ASSERT_NE(model, nullptr);
    const ImportedModel imported = MustImport(*model, {});
    const ir::Function* eval = imported.forward.module.Find("eval");
    ASSERT_NE(eval, nullptr);
    for (const auto& [first, second, inside] :
         std::vector<std::tuple<int64_t, int64_t, bool>>{{2, 1, true},
                                                         {-3, -2, true},
                                                         {0, 5, false},
                                                         {0, -3, false},
                                                         {3, 0, false},
                                                         {-4, 1, false},
                                                         {INT64_MAX, 1, false}}) {
      std::vector<ir::HostTensor> arguments;
      for (const ir::Argument& a : eval->arguments()) {
        arguments.push_back(a.name == "i" ? Int64s({1, 2}, {first, second})
                                          : ir::HostTensor::Zeros(eval->type(a.value)));
      }
      EXPECT_EQ(ir::Evaluate(*eval, arguments).ok(), inside) << op << first << " " << second;
    }
  }
}

TEST(TensorScatter, TakesNoAxisOfTheBatch) {
  EXPECT_THAT(Refusal(R"(g (float[2,4,3] c, float[2,1,3] u) => (float[2,4,3] y) {
    y = TensorScatter <axis = 0> (c, u) })",
                      24),
              HasSubstr("the batch dim"));
  EXPECT_THAT(Refusal(R"(g (float[1,4,3] c, float[1,2,3] u) => (float[1,4,3] y)
    <int64[1] w = {3}> { y = TensorScatter (c, u, w) })",
                      24),
              HasSubstr("0 to 2 is expected in linear mode"));
  const auto r = Outputs(GraphModel(R"(g (float[1,2,1] u) => (float[1,3,1] y)
    <float[1,3,1] c = {1, 2, 3}, int64[1] w = {2}> {
      y = TensorScatter <mode = "circular"> (c, u, w) })",
                                    24),
                         {{"u", Floats({1, 2, 1}, {8, 9})}});
  EXPECT_THAT(r.at(0).as<float>(), ElementsAre(9, 2, 8));
}

TEST(ReverseSequence, GradientsFollowTheElements) {
  const auto d = Differentiate(GraphModel(R"(g (int64[2] n) => (float loss)
    <float[3,2] x = {1, 2, 3, 4, 5, 6}, float[3,2] w = {1, 10, 2, 20, 3, 30}> {
      y = ReverseSequence <time_axis = 0, batch_axis = 1> (x, n) z = Mul(y, w)
      loss = ReduceSum <keepdims = 0> (z) })",
                                          10),
                               {{"n", Int64s({2}, {2, 3})}});
  EXPECT_THAT(d.gradients.at("x"), ElementsAre(2, 30, 1, 20, 3, 10));
  EXPECT_THAT(Refusal(R"(g (float[3,2] x) => (float[3,2] y) <int64[2] n = {2, 4}> {
    y = ReverseSequence (x, n) })",
                      10),
              AllOf(HasSubstr("length 4"), HasSubstr("0 to 3")));
}

TEST(MaxPool, IndicesCountThePlaceInTheWholeInput) {
  for (const int order : {0, 1}) {
    const auto r =
        Outputs(GraphModel(R"(g (float[1,2,2,3] x) => (float[1,2,1,1] y, int64[1,2,1,1] i) {
          y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2], dilations = [1, 2], storage_order = )" +
                               std::to_string(order) + "> (x) }",
                           12),
                {{"x", Floats({1, 2, 2, 3}, {1, 9, 2, 3, 9, 4, 0, 9, 5, 1, 9, 2})}});
    EXPECT_THAT(r.at(0).as<float>(), ElementsAre(4, 5));
    EXPECT_THAT(r.at(1).as<int64_t>(), order == 0 ? ElementsAre(5, 8) : ElementsAre(5, 6 + 4));
  }
}

TEST(MaxUnpool, IsTheWayBackOfMaxPoolWithItsGradient) {
  const auto d = Differentiate(GraphModel(R"(g (float[1,1,1,4] k) => (float loss)
    <float[1,1,1,4] x = {1, 5, 7, 2}, float[1,1,1,4] w = {1, 10, 100, 1000}> {
      p, i = MaxPool <kernel_shape = [1, 2], strides = [1, 2]> (x)
      y = MaxUnpool <kernel_shape = [1, 2], strides = [1, 2]> (p, i) z = Mul(y, w)
      loss = ReduceSum <keepdims = 0> (z) })",
                                          12),
                               {{"k", Floats({1, 1, 1, 4}, {0, 0, 0, 0})}});
  EXPECT_THAT(d.loss, ElementsAre(50 + 700));
  EXPECT_THAT(d.gradients.at("x"), ElementsAre(0, 10, 100, 0));
  EXPECT_THAT(Refusal(R"(g (float[1,1,2,2] x, int64[1,1,2,2] i) => (float[1,1,3,4] y)
    <int64[4] s = {1, 1, 3, 4}> {
      y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (x, i, s) })",
                      12),
              HasSubstr("at least [1,1,4,4]"));
}

}  // namespace
}  // namespace hyper::onnx_frontend
