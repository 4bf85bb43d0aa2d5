// Operators on bits, running products, determinants, p-norms, diagonals: values by hand and
// gradients where they need a definition.
#include <cmath>
#include <limits>

#include "bug_cases.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
ir::HostTensor Vector(ir::DType dtype, std::vector<T> values) {
  return ir::HostTensor::FromVector(dtype, {static_cast<int64_t>(values.size())}, values);
}

std::string RefusalOf(const std::string& graph, int opset) {
  return RefuseImport(*MustLoad(GraphModel(graph, opset)), {});
}

TEST(Bits, OfSignedAndUnsignedIntegers) {
  const auto model = GraphModel(
      "g (int8[2] a, int8[2] b) => (int8[2] and, int8[2] or, int8[2] xor, int8[2] not) { and = "
      "BitwiseAnd(a, b) or = BitwiseOr(a, b) xor = BitwiseXor(a, b) not = BitwiseNot(a) }",
      18);
  const auto r = Outputs(model, {{"a", Vector<int8_t>(ir::DType::kI8, {-86, 5})},
                                 {"b", Vector<int8_t>(ir::DType::kI8, {15, -1})}});
  ASSERT_EQ(r.size(), 4u);
  EXPECT_THAT(r[0].as<int8_t>(), ElementsAre(10, 5));
  EXPECT_THAT(r[1].as<int8_t>(), ElementsAre(-81, -1));
  EXPECT_THAT(r[2].as<int8_t>(), ElementsAre(-91, -6));
  EXPECT_THAT(r[3].as<int8_t>(), ElementsAre(85, -6));
}

TEST(Bits, LogicTakesBoolAndBitsTakeIntegers) {
  EXPECT_THAT(RefusalOf("g (bool[2] x) => (bool[2] y) { y = BitwiseNot(x) }", 18),
              HasSubstr("BitwiseNot"));
  EXPECT_THAT(RefusalOf("g (int32[2] x) => (bool[2] y) { y = Not(x) }", 18), HasSubstr("Not"));
}

// Every bit pattern of a constant counts, beyond what a double holds, too.
TEST(Bits, LargeUnsignedConstants) {
  const auto model = GraphModel(
      "g (uint64[3] x) => (uint64[3] y) <uint64[3] m = {18446744073709551615, "
      "18446744073709551615, 18446744073709551615}> { y = BitwiseXor(x, m) }",
      18);
  const auto r = Outputs(model, {{"x", Vector<uint64_t>(ir::DType::kU64, {0, 1, 1ULL << 63})}});
  EXPECT_THAT(r.at(0).as<uint64_t>(), ElementsAre(~uint64_t{0}, ~uint64_t{1}, (1ULL << 63) - 1));
}

TEST(Bits, ShiftsBeyondTheWidthLeaveNothing) {
  const auto shift = [](const std::string& direction) {
    return Outputs(
        GraphModel("g (uint8[4] x, uint8[4] n) => (uint8[4] y) { y = BitShift <direction "
                   "= \"" +
                       direction + "\"> (x, n) }",
                   11),
        {{"x", Vector<uint8_t>(ir::DType::kU8, {129, 129, 129, 129})},
         {"n", Vector<uint8_t>(ir::DType::kU8, {0, 1, 8, 255})}});
  };
  EXPECT_THAT(shift("LEFT").at(0).as<uint8_t>(), ElementsAre(129, 2, 0, 0));
  EXPECT_THAT(shift("RIGHT").at(0).as<uint8_t>(), ElementsAre(129, 64, 0, 0));
  EXPECT_THAT(
      RefusalOf("g (uint8[1] x) => (uint8[1] y) { y = BitShift <direction = \"UP\"> (x, x) }", 11),
      HasSubstr("LEFT and RIGHT"));
}

TEST(Bits, BitCastKeepsTheBits) {
  const auto model = GraphModel(
      "g (float[3] x) => (int32[3] y, float[3] z) { y = BitCast <to = 6> (x) z = BitCast <to = 1> "
      "(y) }",
      26);
  const float nan = std::nanf("");
  const auto r = Outputs(model, {{"x", Floats({3}, {1, -0.0F, nan})}});
  ASSERT_EQ(r.size(), 2u);
  EXPECT_THAT(r[0].as<int32_t>(),
              ElementsAre(0x3f800000, std::numeric_limits<int32_t>::min(), 0x7fc00000));
  EXPECT_EQ(r[1].as<float>()[0], 1);
  EXPECT_TRUE(std::signbit(r[1].as<float>()[1]));
  EXPECT_TRUE(std::isnan(r[1].as<float>()[2]));
  EXPECT_THAT(RefusalOf("g (float[2] x) => (int64[2] y) { y = BitCast <to = 7> (x) }", 26),
              HasSubstr("one width"));
}

TEST(CumProd, GradientsAroundZeros) {
  const auto d = Differentiate(
      GraphModel("g (float[1] x) => (float loss) <float[5] w = {2, 0, 3, 0, 5}, int64 k = {0}> { y "
                 "= CumProd(w, k) loss = ReduceSum <keepdims = 0> (y) }",
                 26),
      {});
  // y = w0, w0 w1, w0 w1 w2, ...
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(1, 2 + 2 * 3, 0, 0, 0));
}

TEST(Det, GradientOfSingularMatrices) {
  const auto gradient = [](const std::string& values) {
    return Differentiate(GraphModel("g (float[1] x) => (float loss) <float[3,3] w = {" + values +
                                        "}> { loss = Det(w) }",
                                    22),
                         {})
        .gradients.at("w");
  };
  // Rank 2: the cofactors are those of the definition. Rank 1: all of them are 0.
  EXPECT_THAT(gradient("1,0,0,0,2,0,0,0,0"), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 2));
  EXPECT_THAT(gradient("1,1,1,1,1,1,1,1,1"), ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0));
}

TEST(LpNorm, ZeroRowsAreZeroWithoutGradient) {
  for (const char* p : {"1", "2"}) {
    const auto d = Differentiate(
        GraphModel(std::string("g (float[1] x) => (float loss) <float[2,2] w = {0, 0, 3, 4}> { y = "
                               "LpNormalization <p = ") +
                       p + "> (w) loss = ReduceSum <keepdims = 0> (y) }",
                   22),
        {});
    EXPECT_THAT(d.loss, ElementsAre(testing::FloatNear(*p == '1' ? 1 : 1.4F, 1e-6F)));
    EXPECT_EQ(d.gradients.at("w")[0], 0);
    EXPECT_EQ(d.gradients.at("w")[1], 0);
  }
}

TEST(LpNorm, PoolsCountPaddingAsZero) {
  const auto model = GraphModel(
      "g (float[1,1,3] x) => (float[1,1,2] y) { y = LpPool <kernel_shape = [2], strides = [2], "
      "pads = [1,0], p = 3> (x) }",
      18);
  const auto r = Outputs(model, {{"x", Floats({1, 1, 3}, {-2, 3, -4})}});
  EXPECT_NEAR(r.at(0).as<float>()[0], 2, 1e-6);
  EXPECT_NEAR(r.at(0).as<float>()[1], std::cbrt(27.0F + 64.0F), 1e-5);
  EXPECT_THAT(RefusalOf("g (float[1,1,3] x) => (float[1,1,2] y) { y = LpPool <kernel_shape = [2], "
                        "p = 0> (x) }",
                        18),
              HasSubstr("p is 0"));
}

TEST(Einsum, DiagonalsAndTraces) {
  const auto run = [](const std::string& equation, const std::string& result) {
    return Outputs(
               GraphModel("g (float[2,3,3] x) => (" + result + " y) { y = Einsum <equation = \"" +
                              equation + "\"> (x) }",
                          12),
               {{"x", Floats({2, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 1, 0, 2, 0, 3, 0, 4})}})
        .at(0);
  };
  EXPECT_THAT(run("bii->bi", "float[2,3]").as<float>(), ElementsAre(1, 5, 9, 0, 2, 4));
  EXPECT_THAT(run("...ii->i...", "float[3,2]").as<float>(), ElementsAre(1, 0, 5, 2, 9, 4));
  EXPECT_THAT(run("bii", "float[2]").as<float>(), ElementsAre(15, 6));
  const auto d = Differentiate(
      GraphModel(
          "g (float[1] x) => (float loss) <float[2,2] w = {1, 2, 3, 4}, float[2] v = {5, 7}> "
          "{ loss = Einsum <equation = \"ii,i->\"> (w, v) }",
          12),
      {});
  EXPECT_THAT(d.loss, ElementsAre(33));
  EXPECT_THAT(d.gradients.at("w"), ElementsAre(5, 0, 0, 7));
  EXPECT_THAT(
      RefusalOf("g (float[2,3] x) => (float y) { y = Einsum <equation = \"ii->\"> (x) }", 12),
      HasSubstr("extents 2 and 3"));
}

}  // namespace
}  // namespace hyper::onnx_frontend
