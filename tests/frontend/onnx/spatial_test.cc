// Windows, resampling and quantized values: the cases of public bug reports, and values by hand.
#include <cmath>
#include <numeric>

#include "test_models.h"

namespace hyper::onnx_frontend {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ir::HostTensor Ones(ir::Dims dims) {
  const std::vector<float> values(static_cast<size_t>(ir::ElementCount(dims)), 1);
  return ir::HostTensor::FromVector(ir::DType::kF32, std::move(dims), values);
}

ir::HostTensor Counting(ir::Dims dims, float first = 0) {
  std::vector<float> values(static_cast<size_t>(ir::ElementCount(dims)));
  std::iota(values.begin(), values.end(), first);
  return ir::HostTensor::FromVector(ir::DType::kF32, std::move(dims), values);
}

ir::HostTensor RunGraph(const std::string& graph, int opset,
                        const std::map<std::string, ir::HostTensor>& inputs) {
  const auto model = MustLoad(GraphModel(graph, opset));
  const auto results = Evaluated(MustImport(*model, {}), "eval", inputs);
  return results.empty() ? ir::HostTensor() : results[0];
}

std::vector<double> Values(const ir::HostTensor& t) {
  std::vector<double> values;
  for (int64_t i = 0; i < t.type().elements(); ++i) {
    values.push_back(ir::IsFloat(t.type().dtype) ? t.ElementAsDouble(i)
                                                 : static_cast<double>(t.ElementAsInt(i)));
  }
  return values;
}

// tvm, onnx: SAME padding must count the dilated kernel.
TEST(Windows, SamePaddingCountsTheDilatedKernel) {
  const auto y = RunGraph(
      "g (float[1,1,22,27] x, float[1,1,3,3] w) => (float[a,b,c,d] y) { y = Conv <auto_pad = "
      "\"SAME_UPPER\", dilations = [2,2]> (x, w) }",
      17, {{"x", Ones({1, 1, 22, 27})}, {"w", Ones({1, 1, 3, 3})}});
  ASSERT_THAT(y.type().dims, ElementsAre(1, 1, 22, 27));
  EXPECT_EQ(y.as<float>()[0], 4);           // taps at 0 and 2
  EXPECT_EQ(y.as<float>()[2 * 27 + 2], 9);  // all taps inside
  EXPECT_EQ(y.as<float>()[21 * 27 + 26], 4);
}

TEST(Windows, ABiasOfTwoAxesIsRefusedWithItsCause) {
  const std::string message = RefuseImport(
      *MustLoad(GraphModel("g (float[1,2,3,3,3] x, float[6,2,1,1,1] w) => (float[a,b,c,d,e] y) "
                           "<float[6,2] b = {0,0,0,0,0,0,0,0,0,0,0,0}> { y = Conv(x, w, b) }")),
      {});
  EXPECT_THAT(message, HasSubstr("bias has shape [6,2], expected [6]"));
  EXPECT_THAT(message, HasSubstr("with optimize=True it leaves it out"));
}

std::vector<float> OneHotTransposed(int opset, const std::string& attributes, ir::Dims* dims) {
  std::vector<float> x(9, 0);
  x[0] = 1;
  const auto y = RunGraph(
      "g (float[1,1,3,3] x, float[1,1,3,3] w) => (float[a,b,c,d] y) { y = "
      "ConvTranspose <strides = [2,2], " +
          attributes + "> (x, w) }",
      opset,
      {{"x", ir::HostTensor::FromVector(ir::DType::kF32, {1, 1, 3, 3}, x)},
       {"w", Counting({1, 1, 3, 3}, 1)}});
  *dims = y.type().dims;
  return {y.as<float>().begin(), y.as<float>().end()};
}

// onnx, onnxruntime: auto_pad makes the output input * stride, output_padding or not. The element
// at 0, 0 tells how much was cut off before: 1 nothing, 5 one row and one column.
TEST(Windows, TransposedConvolutionsPadThemselves) {
  ir::Dims dims;
  EXPECT_EQ(OneHotTransposed(17, "auto_pad = \"SAME_UPPER\"", &dims)[0], 1);
  EXPECT_THAT(dims, ElementsAre(1, 1, 6, 6));
  EXPECT_EQ(OneHotTransposed(17, "auto_pad = \"SAME_LOWER\"", &dims)[0], 5);
  EXPECT_THAT(dims, ElementsAre(1, 1, 6, 6));
  EXPECT_EQ(OneHotTransposed(17, "auto_pad = \"SAME_UPPER\", output_padding = [1,1]", &dims)[0], 5);
  EXPECT_THAT(dims, ElementsAre(1, 1, 6, 6));
  EXPECT_EQ(OneHotTransposed(17, "output_padding = [1,1]", &dims)[0], 1);
  EXPECT_THAT(dims, ElementsAre(1, 1, 8, 8));
}

// With output_shape the pads follow; the odd one lies before from version 11 on, after in version
// 1, as their texts say.
TEST(Windows, OutputShapeDecidesThePads) {
  ir::Dims dims;
  EXPECT_EQ(OneHotTransposed(17, "output_shape = [6,6]", &dims)[0], 5);
  EXPECT_THAT(dims, ElementsAre(1, 1, 6, 6));
  EXPECT_EQ(OneHotTransposed(9, "output_shape = [6,6]", &dims)[0], 1);
  EXPECT_THAT(dims, ElementsAre(1, 1, 6, 6));
  // Larger than the windows reach: zeros behind.
  const std::vector<float> y = OneHotTransposed(17, "output_shape = [8,8]", &dims);
  EXPECT_THAT(dims, ElementsAre(1, 1, 8, 8));
  EXPECT_EQ(y[0], 1);
}

TEST(Windows, PoolsOfCeilModeIgnoreWhatLiesOutside) {
  const auto y = RunGraph(
      "g (float[1,1,4] x) => (float[a,b,c] y) { y = AveragePool <kernel_shape = [3], strides = "
      "[2], pads = [1,0], ceil_mode = 1, count_include_pad = 1> (x) }",
      22, {{"x", Counting({1, 1, 4}, 1)}});
  // Windows {pad, 1, 2}, {2, 3, 4}; a third would start behind the input.
  EXPECT_THAT(Values(y), ElementsAre(1, 3));
}

// onnx: one output element.
TEST(Resampling, OneElementReadsTheFirst) {
  for (const char* mode : {"pytorch_half_pixel", "align_corners"}) {
    const auto y = RunGraph(std::string("g (float[1,1,1,10] x) => (float[a,b,c,d] y) <int64[4] s = "
                                        "{1,1,1,1}> { y = Resize <mode = \"linear\", "
                                        "coordinate_transformation_mode = \"") +
                                mode + "\"> (x, , , s) }",
                            18, {{"x", Counting({1, 1, 1, 10}, 3)}});
    EXPECT_THAT(Values(y), ElementsAre(3)) << mode;
  }
}

TEST(Resampling, DoublingByHand) {
  const auto y = RunGraph(
      "g (float[1,1,4] x) => (float[a,b,c] y) <float[3] s = {1,1,2}> { y = Resize <mode = "
      "\"linear\"> (x, , s) }",
      18, {{"x", Counting({1, 1, 4})}});
  EXPECT_THAT(Values(y), ElementsAre(0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3));
  const auto nearest = RunGraph(
      "g (float[1,1,2,2] x) => (float[a,b,c,d] y) <float[4] s = {1,1,2,3}> { y = Resize (x, , s) }",
      18, {{"x", Counting({1, 1, 2, 2})}});
  EXPECT_THAT(Values(nearest),
              ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 2, 2, 2, 3, 3, 3));
}

TEST(Resampling, HalfTypesAndIntegers) {
  const auto y = RunGraph(
      "g (uint8[1,1,3] x) => (uint8[a,b,c] y) <float[3] s = {1,1,2}> { y = Resize <mode = "
      "\"linear\", coordinate_transformation_mode = \"asymmetric\"> (x, , s) }",
      18, {{"x", ir::HostTensor::FromVector<uint8_t>(ir::DType::kU8, {1, 1, 3}, {10, 21, 250})}});
  EXPECT_THAT(Values(y), ElementsAre(10, 15, 21, 135, 250, 250));
  const auto half = RunGraph(
      "g (float[1,1,3] x) => (float16[a,b,c] y) <float[3] s = {1,1,2}> { h = Cast <to = 10> (x) y "
      "= Resize <mode = \"linear\", coordinate_transformation_mode = \"asymmetric\"> (h, , s) }",
      18, {{"x", Counting({1, 1, 3})}});
  EXPECT_THAT(Values(half), ElementsAre(0, 0.5, 1, 1.5, 2, 2));
}

TEST(Resampling, ReflectsAtTheRightPlace) {
  // Two elements, coordinate 2 beyond the first: outer elements repeat unless corners align.
  const char* graph =
      "g (float[1,1,1,2] x, float[1,1,1,2] grid) => (float[a,b,c,d] y) { y = GridSample <mode = "
      "\"nearest\", padding_mode = \"reflection\", align_corners = ";
  const auto grid = ir::HostTensor::FromVector<float>(ir::DType::kF32, {1, 1, 1, 2}, {-3.0F, 0.0F});
  const auto x = Counting({1, 1, 1, 2});
  // ((-3 + 1) * 2 - 1) / 2 = -2.5, half to even -2: mirrored at -0.5 it is 1.
  EXPECT_THAT(
      Values(RunGraph(std::string(graph) + "0> (x, grid) }", 16, {{"x", x}, {"grid", grid}})),
      ElementsAre(1));
  // (-3 + 1) / 2 = -1: mirrored at 0 it is 1.
  EXPECT_THAT(
      Values(RunGraph(std::string(graph) + "1> (x, grid) }", 16, {{"x", x}, {"grid", grid}})),
      ElementsAre(1));
}

TEST(Resampling, NaNCoordinatesGiveNaN) {
  const auto grid =
      ir::HostTensor::FromVector<float>(ir::DType::kF32, {1, 1, 1, 2}, {std::nanf(""), 1e30F});
  const auto y = RunGraph(
      "g (float[1,1,2,2] x, float[1,1,1,2] grid) => (float[a,b,c,d] y) { y = GridSample "
      "<padding_mode = \"border\"> (x, grid) }",
      16, {{"x", Ones({1, 1, 2, 2})}, {"grid", grid}});
  EXPECT_TRUE(std::isnan(y.as<float>()[0]));
}

TEST(Quantization, RoundsToEvenAndSaturates) {
  const auto x = ir::HostTensor::FromVector<float>(ir::DType::kF32, {2, 3},
                                                   {0.5F, 1.5F, -1000.0F, 2.5F, 1000.0F, -3.0F});
  const auto y = RunGraph(
      "g (float[2,3] x) => (int8[a,b] y) <float[3] s = {1, 1, 2}, int8[3] z = {1, 0, -1}> { y = "
      "QuantizeLinear <axis = -1> (x, s, z) }",
      13, {{"x", x}});
  EXPECT_THAT(Values(y), ElementsAre(1, 2, -128, 3, 127, -3));
}

TEST(Quantization, BlocksMayEndShort) {
  const auto x = Counting({1, 5}, 1);
  const auto y = RunGraph(
      "g (float[1,5] x) => (uint16[a,b] y) <float[1,3] s = {1, 0.5, 0.25}> { y = QuantizeLinear "
      "<axis = 1, block_size = 2, output_dtype = 4> (x, s) }",
      23, {{"x", x}});
  EXPECT_THAT(Values(y), ElementsAre(1, 2, 6, 8, 20));
  EXPECT_THAT(RefuseImport(*MustLoad(GraphModel("g (float[1,5] x) => (int8[a,b] y) <float[1,2] s = "
                                                "{1, 2}> { y = QuantizeLinear <block_size = 2, "
                                                "output_dtype = 3> (x, s) }",
                                                23)),
                           {}),
              HasSubstr("do not fit [1,5] with block_size 2"));
}

// Sums beyond what f32 holds exactly.
TEST(Quantization, IntegerProductsAreExact) {
  const int64_t k = 70000;
  std::vector<uint8_t> a(static_cast<size_t>(k), 255);
  a[0] = 254;
  const auto left = ir::HostTensor::FromVector(ir::DType::kU8, {1, k}, a);
  const auto right = ir::HostTensor::FromVector(ir::DType::kU8, {k, 1},
                                                std::vector<uint8_t>(static_cast<size_t>(k), 1));
  const std::string dims = std::to_string(k);
  const auto y = RunGraph("g (uint8[1," + dims + "] x, uint8[" + dims +
                              ",1] w) => (int32[a,b] y) { y = MatMulInteger (x, w) }",
                          17, {{"x", left}, {"w", right}});
  EXPECT_THAT(Values(y), ElementsAre(255.0 * 70000 - 1));
  const auto conv = RunGraph(
      "g (uint8[1,1," + dims + "] x, uint8[1,1," + dims +
          "] w) => (int32[a,b,c] y) { y = ConvInteger (x, w) }",
      17,
      {{"x", ir::HostTensor::FromVector(ir::DType::kU8, {1, 1, k}, a)},
       {"w", ir::HostTensor::FromVector(ir::DType::kU8, {1, 1, k},
                                        std::vector<uint8_t>(static_cast<size_t>(k), 100))}});
  EXPECT_THAT(Values(conv), ElementsAre(255.0 * 100 * 70000 - 100));
}

TEST(Regions, SampleCountsFollowKnownRegions) {
  // A constant image gives that constant, whatever the number of samples.
  const auto y = RunGraph(
      "g (float[1,1,8,8] x) => (float[a,b,c,d] y) <int64[2] at = {0,0}> { r = Constant <value = "
      "float[2,4] {0,0,7,7,2,2,3,3}> () y = RoiAlign <output_height = 2, output_width = 2> (x, r, "
      "at) }",
      16, {{"x", Ones({1, 1, 8, 8})}});
  EXPECT_THAT(Values(y), Each(1));
  EXPECT_THAT(y.type().dims, ElementsAre(2, 1, 2, 2));
  EXPECT_THAT(
      RefuseImport(*MustLoad(GraphModel("g (float[1,1,8,8] x, float[1,4] r, int64[1] at) => "
                                        "(float[a,b,c,d] y) { y = RoiAlign (x, r, at) }",
                                        16)),
                   {}),
      HasSubstr("depends on data (sampling_ratio is 0)"));
}

TEST(Regions, MaximaOfBins) {
  const auto y = RunGraph(
      "g (float[1,1,4,6] x) => (float[a,b,c,d] y) <float[3,5] r = {0,1,0,4,3, 0,5,3,5,3, "
      "0,20,20,21,21}> { y = MaxRoiPool <pooled_shape = [2,2]> (x, r) }",
      17, {{"x", Counting({1, 1, 4, 6})}});
  // Columns 1 to 4 and rows 0 to 3 in halves; one element for all bins; nothing.
  EXPECT_THAT(Values(y), ElementsAre(8, 10, 20, 22, 23, 23, 23, 23, 0, 0, 0, 0));
}

TEST(Signals, TransformsOfPrimeLengthInvertEachOther) {
  const auto y = RunGraph(
      "g (float[1,7,1] x) => (float[a,b,c] y) { f = DFT <onesided = 1> (x) n = Constant "
      "<value_int = 7> () y = DFT <onesided = 1, inverse = 1> (f, n) }",
      20, {{"x", Counting({1, 7, 1}, 1)}});
  EXPECT_THAT(Values(y), ::testing::Pointwise(::testing::DoubleNear(1e-5),
                                              std::vector<double>{1, 2, 3, 4, 5, 6, 7}));
}

// Lengths that are factored: one frequency, and back.
TEST(Signals, LongTransforms) {
  const int64_t n = 6000;  // 60 * 100
  std::vector<float> wave;
  for (int64_t t = 0; t < n; ++t) {
    wave.push_back(static_cast<float>(std::cos(2 * M_PI * 1234 * static_cast<double>(t) / n)));
  }
  const auto x = ir::HostTensor::FromVector(ir::DType::kF32, {1, n, 1}, wave);
  const auto one = RunGraph(
      "g (float[1,6000,1] x) => (float[a,b,c] y) { y = DFT <onesided = 1> (x) }", 20, {{"x", x}});
  ASSERT_THAT(one.type().dims, ElementsAre(1, 3001, 2));
  for (int64_t k = 0; k < 3001; ++k) {
    EXPECT_NEAR(one.as<float>()[static_cast<size_t>(2 * k)], k == 1234 ? n / 2.0 : 0, 0.05) << k;
    EXPECT_NEAR(one.as<float>()[static_cast<size_t>(2 * k + 1)], 0, 0.05) << k;
  }
  for (const char* graph :
       {"g (float[1,6000,1] x) => (float[a,b,c] y) { f = DFT <onesided = 1> (x) y = DFT <onesided "
        "= "
        "1, inverse = 1> (f) }",
        "g (float[1,6000,1] x) => (float[a,b,c] y) { f = DFT (x) g = DFT <inverse = 1> (f) real = "
        "Constant <value_ints = [0]> () y = Gather <axis = 2> (g, real) }"}) {
    const auto y = RunGraph(graph, 20, {{"x", x}});
    ASSERT_THAT(y.type().dims, ElementsAre(1, n, 1));
    for (size_t t = 0; t < wave.size(); ++t) EXPECT_NEAR(y.as<float>()[t], wave[t], 1e-4) << t;
  }
}

// What the standard allows in half types is imported in them and stays near the f32 result.
TEST(HalfTypes, AgreeWithSinglePrecision) {
  const std::vector<std::string> nodes = {
      "Resize <mode = \"cubic\"> (x, , scales)",
      "Resize <mode = \"linear\", coordinate_transformation_mode = \"align_corners\"> (x, , "
      "scales)",
      "AveragePool <kernel_shape = [2,2], pads = [0,0,1,1]> (x)",
      "GlobalLpPool (x)",
      "Conv <auto_pad = \"SAME_LOWER\"> (x, w)",
      "ConvTranspose <strides = [2,2]> (x, w)",
      "GridSample (x, grid)",
      "DeformConv (x, w, offset)",
      "RoiAlign <sampling_ratio = 2, output_height = 2, output_width = 2> (x, rois, at)"};
  const std::string inputs =
      "float[1,2,4,4] x0, float[2,2,2,2] w0, float[1,2,2,2] grid0, float[1,8,3,3] offset0, "
      "float[1,4] rois0";
  std::map<std::string, ir::HostTensor> values;
  for (const auto& [name, dims] :
       std::vector<std::pair<std::string, ir::Dims>>{{"x0", {1, 2, 4, 4}},
                                                     {"w0", {2, 2, 2, 2}},
                                                     {"grid0", {1, 2, 2, 2}},
                                                     {"offset0", {1, 8, 3, 3}}}) {
    std::vector<float> numbers(static_cast<size_t>(ir::ElementCount(dims)));
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>((i * 37 + 11) % 64) / 64 - 0.5F;
    }
    values[name] = ir::HostTensor::FromVector(ir::DType::kF32, dims, numbers);
  }
  values["rois0"] =
      ir::HostTensor::FromVector<float>(ir::DType::kF32, {1, 4}, {0.5F, 0.25F, 3, 2.5F});
  for (const std::string& node : nodes) {
    std::vector<std::vector<double>> results;
    for (const auto& [type, name] : std::vector<std::pair<int, std::string>>{
             {1, "float"}, {10, "float16"}, {16, "bfloat16"}}) {
      std::string casts;
      for (const char* v : {"x", "w", "grid", "offset", "rois"}) {
        casts += std::string(v) + " = Cast <to = " + std::to_string(type) + "> (" + v + "0) ";
      }
      const auto y =
          RunGraph("g (" + inputs + ") => (" + name +
                       "[a,b,c,d] y) <float[4] scales = {1,1,2,1.5}, int64[1] at = {0}> {" + casts +
                       "y = " + node + " }",
                   22, values);
      results.push_back(Values(y));
    }
    for (size_t half = 1; half < results.size(); ++half) {
      ASSERT_EQ(results[half].size(), results[0].size()) << node;
      const double tolerance = half == 1 ? 4e-3 : 3e-2;
      for (size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_NEAR(results[half][i], results[0][i], tolerance) << node << " element " << i;
      }
    }
  }
}

// Files that ask for more than can be listed are refused before anything is allocated.
TEST(Hostile, HugeExtentsAreRefused) {
  const std::vector<std::pair<std::string, std::string>> graphs = {
      {"g (float[1,1,4] x) => (float[a,b,c] y) <float[3] s = {1,1,200000000}> { y = Resize <mode = "
       "\"linear\"> (x, , s) }",
       "resizing 4 elements to 800000000"},
      {"g (float[1,1,3000000] x) => (float[a,b,c] y) <float[3] s = {1,1,0.00001}> { y = Resize "
       "<mode = \"linear\", antialias = 1> (x, , s) }",
       "elements to"},
      {"g (float[1,900000000,1] x) => (float[a,b,c] y) { y = DFT <axis = 1> (x) }",
       "a transform of length 900000000"},
      {"g (float[1,4194301,1] x) => (float[a,b,c] y) { y = DFT <axis = 1> (x) }",
       "a transform of length 4194301"},
      {"g (float[1,1000000,1] x) => (float[a,b,c,d] y) <int64[2] i = {1000,1000}> { y = Col2Im (x, "
       "i, i) }",
       "blocks of 1000000 elements"}};
  for (const auto& [graph, message] : graphs) {
    const int opset = graph.find("DFT") != std::string::npos ? 19 : 18;
    EXPECT_THAT(RefuseImport(*MustLoad(GraphModel(graph, opset)), {}), HasSubstr(message)) << graph;
  }
}

TEST(Pads, NegativeOnesCropBeforeTheImageIsMirrored) {
  EXPECT_THAT(RefuseImport(*MustLoad(GraphModel("g (float[4] x) => (float[a] y) <int64[2] p = "
                                                "{-3, 3}> { y = Pad <mode = \"reflect\"> (x, p) }",
                                                18)),
                           {}),
              HasSubstr("must be smaller than dim 0 (1)"));
  const auto y = RunGraph(
      "g (float[2,4] x) => (float[a,b] y) <int64[2] p = {-1, 2}, float v = {0.0}, int64[1] axes = "
      "{-1}> { y = Pad <mode = \"reflect\"> (x, p, v, axes) }",
      18, {{"x", Counting({2, 4})}});
  EXPECT_THAT(Values(y), ElementsAre(1, 2, 3, 2, 1, 5, 6, 7, 6, 5));
}

}  // namespace
}  // namespace hyper::onnx_frontend
