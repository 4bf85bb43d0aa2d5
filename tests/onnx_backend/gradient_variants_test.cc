// Gradients through the importer of what the node tests do not show: attribute variants, other
// ranks, operands that they leave out. Every case is checked twice: right gradients agree with
// differences, gradients wrong by one percent do not.
#include <iostream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/onnx_backend/gradient_check.h"
#include "tests/onnx_backend/graph_case.h"

namespace hyper::onnx_backend {
namespace {

using Variant = GraphCase;

// p-norms, running products, determinants and diagonals.
void AddMath(std::vector<Variant>& all) {
  auto add = [&](std::string name, int opset, std::string graph) {
    all.push_back({std::move(name), opset, std::move(graph)});
  };
  for (int p : {1, 2, 3}) {
    add(fmt::format("lp_pool_ceil_{}", p), 18,
        fmt::format("g (float[2,1,7,6] x) => (float[a,b,c,d] y) {{ y = LpPool <kernel_shape = "
                    "[2,3], dilations = [2,1], strides = [2,2], ceil_mode = 1, pads = [0,1,1,0], p "
                    "= {}> (x) }}",
                    p));
    add(fmt::format("lp_pool_1d_{}", p), p == 1 ? 7 : 11,
        fmt::format("g (float[2,3,7] x) => (float[a,b,c] y) {{ y = LpPool <kernel_shape = [3], "
                    "auto_pad = \"SAME_LOWER\", strides = [2], p = {}> (x) }}",
                    p));
    add(fmt::format("lp_pool_3d_{}", p), 22,
        fmt::format("g (float[1,2,3,4,3] x) => (float[a,b,c,d,e] y) {{ y = LpPool <kernel_shape = "
                    "[2,2,3], auto_pad = \"SAME_UPPER\", p = {}> (x) }}",
                    p));
  }
  for (int p : {1, 2}) {
    for (int axis : {0, -2, 2}) {
      add(fmt::format("lp_normalization_{}_{}", p, axis), axis == 0 ? 7 : 22,
          fmt::format("g (float[2,3,4] x) => (float[a,b,c] y) {{ y = LpNormalization <p = {}, axis "
                      "= {}> (x) }}",
                      p, axis));
    }
  }
  for (int exclusive : {0, 1}) {
    for (int reverse : {0, 1}) {
      add(fmt::format("cum_prod_{}_{}", exclusive, reverse), 26,
          fmt::format("g (float[3,5] x) => (float[a,b] y) <int64 axis = {{1}}> {{ y = CumProd "
                      "<exclusive = {}, reverse = {}> (x, axis) }}",
                      exclusive, reverse));
    }
  }
  for (int opset : {11, 22}) {
    add(fmt::format("det_{}", opset), opset, "g (float[2,4,4] x) => (float[a] y) { y = Det(x) }");
  }
  for (const auto& [equation, operands] : std::vector<std::pair<std::string, int>>{
           {"ii->i", 1}, {"ii->", 1}, {"ii", 1}, {"ii,i->i", 2}, {"ii,ji->j", 2}}) {
    add("einsum_" + equation, 12,
        fmt::format("g (float[3,3] x, float[{}3] z) => (float{} y) {{ y = Einsum <equation = "
                    "\"{}\"> (x{}) }}",
                    equation == "ii,i->i" ? "" : "3,",
                    equation.back() == '>' || equation == "ii" ? "" : "[a]", equation,
                    operands == 2 ? ", z" : ""));
  }
  add("einsum_three", 12,
      "g (float[2,3,2,2] x) => (float[a,b] y) { y = Einsum <equation = \"ijii->ji\"> (x) }");
}

std::vector<Variant> Variants() {
  std::vector<Variant> all;
  AddMath(all);
  auto add = [&](std::string name, int opset, std::string graph) {
    all.push_back({std::move(name), opset, std::move(graph)});
  };
  const std::vector<std::string> paddings = {"zeros", "border", "reflection"};
  for (const std::string& padding : paddings) {
    for (int align : {0, 1}) {
      for (const char* mode : {"linear", "cubic", "nearest"}) {
        add(fmt::format("grid_sample_{}_{}_{}", mode, padding, align), 20,
            fmt::format("g (float[2,3,4,5] x, float[2,3,2,2] grid) => (float[a,b,c,d] y) {{ y = "
                        "GridSample <mode = \"{}\", padding_mode = \"{}\", align_corners = {}> "
                        "(x, grid) }}",
                        mode, padding, align));
      }
    }
    add("grid_sample_16_" + padding, 16,
        fmt::format("g (float[1,2,3,3] x, float[1,4,2,2] grid) => (float[a,b,c,d] y) {{ y = "
                    "GridSample <mode = \"bicubic\", padding_mode = \"{}\"> (x, grid) }}",
                    padding));
    add("grid_sample_3d_" + padding, 22,
        fmt::format("g (float[1,2,3,4,2] x, float[1,2,2,2,3] grid) => (float[a,b,c,d,e] y) {{ y = "
                    "GridSample <mode = \"linear\", padding_mode = \"{}\"> (x, grid) }}",
                    padding));
  }
  const std::vector<std::string> coordinates = {"half_pixel", "asymmetric", "align_corners",
                                                "pytorch_half_pixel", "half_pixel_symmetric"};
  const std::vector<std::string> modes = {"nearest", "linear", "cubic"};
  for (const std::string& mode : modes) {
    for (const std::string& how : coordinates) {
      for (const char* scales : {"1,1,2,2", "1,1,0.6,3", "1,1,1.5,0.5"}) {
        add(fmt::format("resize_{}_{}_{}", mode, how, scales), 19,
            fmt::format("g (float[1,2,5,4] x) => (float[a,b,c,d] y) <float[4] scales = {{{}}}> {{ "
                        "y = Resize <mode = \"{}\", coordinate_transformation_mode = \"{}\"> (x, "
                        ", scales) }}",
                        scales, mode, how));
      }
    }
    add("resize_10_" + mode, mode == "cubic" ? 11 : 10,
        mode == "cubic"
            ? "g (float[1,1,4,4] x) => (float[a,b,c,d] y) <float[8] roi = {0,0,0,0,1,1,1,1}, "
              "float[4] scales = {1,1,2,0.75}> { y = Resize <mode = \"cubic\", "
              "cubic_coeff_a = -0.5, exclude_outside = 1> (x, roi, scales) }"
            : fmt::format("g (float[1,1,4,4] x) => (float[a,b,c,d] y) <float[4] scales = "
                          "{{1,1,2,0.75}}> {{ y = Resize <mode = \"{}\"> (x, scales) }}",
                          mode));
  }
  for (const char* mode : {"linear", "cubic"}) {
    add(fmt::format("resize_antialias_{}", mode), 18,
        fmt::format("g (float[1,2,9,7] x) => (float[a,b,c,d] y) <int64[2] sizes = {{4,3}}> {{ y = "
                    "Resize <mode = \"{}\", antialias = 1, axes = [2,3]> (x, , , sizes) }}",
                    mode));
    add(fmt::format("resize_crop_{}", mode), 13,
        fmt::format("g (float[1,1,5,5] x) => (float[a,b,c,d] y) <float[8] roi = "
                    "{{0,0,0.2,-0.3,1,1,0.7,1.2}}, int64[4] sizes = {{1,1,4,6}}> {{ y = Resize "
                    "<mode = \"{}\", coordinate_transformation_mode = \"tf_crop_and_resize\", "
                    "extrapolation_value = 3.0> (x, roi, , sizes) }}",
                    mode));
  }
  // Other ranks and axes; a whole factor of channels; an axis too long for a product.
  add("resize_1d", 18,
      "g (float[2,3,5] x) => (float[a,b,c] y) <float[3] scales = {1,1,3}> { y = Resize <mode = "
      "\"cubic\"> (x, , scales) }");
  add("resize_3d", 18,
      "g (float[1,2,3,2,4] x) => (float[a,b,c,d,e] y) <float[3] scales = {2,2,1.5}> { y = Resize "
      "<mode = \"linear\", axes = [2,3,4]> (x, , scales) }");
  add("resize_channels", 18,
      "g (float[1,4,3,3] x) => (float[a,b,c,d] y) <float[2] scales = {2,2}> { y = Resize <mode = "
      "\"linear\", axes = [1,-1]> (x, , scales) }");
  add("resize_long", 18,
      "g (float[1,1,300] x) => (float[a,b,c] y) <int64[3] sizes = {1,1,70}> { y = Resize <mode = "
      "\"linear\"> (x, , , sizes) }");
  add("upsample_9", 9,
      "g (float[1,2,3,4] x) => (float[a,b,c,d] y) <float[4] scales = {1,1,2,3}> { y = Upsample "
      "<mode = \"linear\"> (x, scales) }");
  add("upsample_7", 7,
      "g (float[1,2,3,4] x) => (float[a,b,c,d] y) { y = Upsample <mode = \"nearest\", scales = "
      "[1.0, 1.0, 2.0, 3.0]> (x) }");
  for (const char* flags : {"inverse = 0, onesided = 0", "inverse = 1, onesided = 0"}) {
    for (int axis : {0, 1, -2}) {
      add(fmt::format("dft_{}_{}", flags, axis), 20,
          fmt::format("g (float[3,5,2,2] x) => (float[a,b,c,d] y) <int64 n = {{4}}, int64 axis = "
                      "{{{}}}> {{ y = DFT <{}> (x, n, axis) }}",
                      axis, flags));
    }
  }
  add("dft_rfft", 17,
      "g (float[2,6,3,1] x) => (float[a,b,c,d] y) { y = DFT <onesided = 1, axis = 2> (x) }");
  add("dft_irfft", 20,
      "g (float[2,4,2] x) => (float[a,b,c] y) { y = DFT <onesided = 1, inverse = 1> (x) }");
  add("dft_long", 20, "g (float[1,2048,2] x) => (float[a,b,c] y) { y = DFT <inverse = 1> (x) }");
  add("dft_long_irfft", 17,
      "g (float[1,1501,2] x) => (float[a,b,c] y) { y = DFT <inverse = 1, onesided = 1> (x) }");
  add("stft", 17,
      "g (float[2,16,1] x, float[6] w) => (float[a,b,c,d] y) <int64 step = {3}> { y = STFT (x, "
      "step, w) }");
  add("stft_complex", 17,
      "g (float[1,12,2] x) => (float[a,b,c,d] y) <int64 step = {2}, int64 n = {5}> { y = STFT "
      "<onesided = 0> (x, step, , n) }");
  add("col2im", 18,
      "g (float[1,8,9] x) => (float[a,b,c,d] y) <int64[2] image = {5,4}, int64[2] block = {2,2}> "
      "{ y = Col2Im <dilations = [2,1]> (x, image, block) }");
  add("col2im_strided", 18,
      "g (float[2,4,4] x) => (float[a,b,c,d] y) <int64[2] image = {5,4}, int64[2] block = {2,2}> "
      "{ y = Col2Im <strides = [2,2], pads = [0,1,0,0]> (x, image, block) }");
  add("deform_conv", 19,
      "g (float[1,4,5,5] x, float[6,2,2,3] w, float[1,24,4,3] o, float[6] b, float[1,12,4,3] m) "
      "=> (float[a,b,c,d] y) { y = DeformConv <group = 2, offset_group = 2> (x, w, o, b, m) }");
  add("deform_conv_strided", 22,
      "g (float[2,1,6,6] x, float[1,1,2,2] w, float[2,8,4,3] o) => (float[a,b,c,d] y) { y = "
      "DeformConv <strides = [2,2], pads = [1,1,1,0], dilations = [1,2]> (x, w, o) }");
  for (const char* mode : {"avg", "max"}) {
    add(fmt::format("roi_align_{}", mode), 16,
        fmt::format(
            "g (float[2,2,6,7] x) => (float[a,b,c,d] y) <int64[3] at = {{0,1,1}}> {{ rois = "
            "Constant <value = float[3,4] {{0,0,5,4,1.3,2.1,9.2,3.3,-4,1,2,2}}> () y = RoiAlign "
            "<mode = \"{}\", output_height = 2, output_width = 3> (x, rois, at) }}",
            mode));
  }
  add("max_roi_pool", 22,
      "g (float[2,2,4,6] x) => (float[a,b,c,d] y) { rois = Constant <value = float[2,5] "
      "{1,1,0,4,3,0,3,2,9,3}> () y = MaxRoiPool <pooled_shape = [2,3]> (x, rois) }");
  for (int p : {1, 2, 3}) {
    add(fmt::format("global_lp_pool_{}", p), 22,
        fmt::format("g (float[2,2,3,4] x) => (float[a,b,c,d] y) {{ y = GlobalLpPool <p = {}> (x) "
                    "}}",
                    p));
  }
  for (const char* pad : {"SAME_UPPER", "SAME_LOWER", "VALID"}) {
    add(fmt::format("conv_1d_{}", pad), 11,
        fmt::format("g (float[1,2,9] x, float[4,1,3] w, float[4] b) => (float[a,b,c] y) {{ y = "
                    "Conv <auto_pad = \"{}\", dilations = [2], strides = [2], group = 2> (x, w, "
                    "b) }}",
                    pad));
    add(fmt::format("conv_transpose_{}", pad), 11,
        fmt::format("g (float[1,2,3,4] x, float[2,2,3,2] w, float[4] b) => (float[a,b,c,d] y) {{ "
                    "y = ConvTranspose <auto_pad = \"{}\", strides = [2,3], dilations = [1,2], "
                    "group = 2, output_padding = [1,0]> (x, w, b) }}",
                    pad));
  }
  add("conv_3d", 22,
      "g (float[1,2,4,4,3] x, float[2,2,2,3,2] w) => (float[a,b,c,d,e] y) { y = Conv <pads = "
      "[1,0,1,0,2,0], strides = [1,2,1]> (x, w) }");
  add("conv_transpose_shape", 22,
      "g (float[1,1,3,3] x, float[1,1,3,3] w) => (float[a,b,c,d] y) { y = ConvTranspose <strides "
      "= [3,2], output_shape = [8,6]> (x, w) }");
  for (int include : {0, 1}) {
    add(fmt::format("average_pool_{}", include), 19,
        fmt::format("g (float[1,1,7,6] x) => (float[a,b,c,d] y) {{ y = AveragePool <kernel_shape "
                    "= [2,3], dilations = [2,1], strides = [2,2], ceil_mode = 1, pads = "
                    "[0,1,1,0], count_include_pad = {}> (x) }}",
                    include));
  }
  const std::vector<std::string> reductions = {"none", "add", "mul", "max", "min"};
  for (const std::string& reduction : reductions) {
    const bool once = reduction == "none";  // repeated known indices are refused
    add("scatter_elements_" + reduction, 18,
        fmt::format("g (float[3,4] x, float[2,3] u) => (float[a,b] y) <int64[2,3] at = {{{}}}> {{ "
                    "y = ScatterElements <axis = -1, reduction = \"{}\"> (x, at, u) }}",
                    once ? "3,-3,0,1,2,-4" : "3,-1,0,1,1,1", reduction));
    add("scatter_nd_" + reduction, 18,
        fmt::format("g (float[3,2,2] x, float[3,2] u) => (float[a,b,c] y) <int64[3,2] at = {{{}}}> "
                    "{{ y = ScatterND <reduction = \"{}\"> (x, at, u) }}",
                    once ? "0,1,-1,0,1,1" : "0,1,-3,-1,2,0", reduction));
    if (reduction == "max" || reduction == "min") continue;
    add("scatter_elements_16_" + reduction, 16,
        fmt::format(
            "g (float[4,2] x, float[2,2] u) => (float[a,b] y) <int64[2,2] at = {{0,3,2,1}}> "
            "{{ y = ScatterElements <reduction = \"{}\"> (x, at, u) }}",
            reduction));
    add("scatter_nd_16_" + reduction, 16,
        fmt::format("g (float[4,2] x, float[2,2] u) => (float[a,b] y) <int64[2,1] at = {{3,1}}> {{ "
                    "y = ScatterND <reduction = \"{}\"> (x, at, u) }}",
                    reduction));
  }
  for (int opset : {11, 13}) {
    add(fmt::format("scatter_elements_{}", opset), opset,
        "g (float[3,3] x, float[1,2] u) => (float[a,b] y) <int64[1,2] at = {2,-3}> { y = "
        "ScatterElements <axis = 1> (x, at, u) }");
    add(fmt::format("scatter_nd_{}", opset), opset,
        "g (float[4,3] x, float[2] u) => (float[a,b] y) <int64[2,2] at = {3,0,1,2}> { y = "
        "ScatterND (x, at, u) }");
  }
  add("scatter_9", 9,
      "g (float[3,3] x, float[2,3] u) => (float[a,b] y) <int64[2,3] at = {1,0,2,0,2,1}> { y = "
      "Scatter (x, at, u) }");
  for (const char* mode : {"linear", "circular"}) {
    add(fmt::format("tensor_scatter_{}", mode), 24,
        fmt::format("g (float[2,2,4,3] x, float[2,2,2,3] u) => (float[a,b,c,d] y) <int64[2] at = "
                    "{{2,{}}}> {{ y = TensorScatter <mode = \"{}\"> (x, u, at) }}",
                    std::string(mode) == "linear" ? 0 : 3, mode));
  }
  for (int time : {0, 1}) {
    add(fmt::format("reverse_sequence_{}", time), 10,
        fmt::format("g (float[4,4,2] x) => (float[a,b,c] y) <int64[4] n = {{1,4,2,3}}> {{ y = "
                    "ReverseSequence <time_axis = {}, batch_axis = {}> (x, n) }}",
                    time, 1 - time));
  }
  for (int opset : {9, 11, 22}) {
    add(fmt::format("max_unpool_{}", opset), opset,
        "g (float[1,2,2,2] x) => (float[a,b,c,d] y) <int64[1,2,2,2] at = "
        "{0,3,12,15,17,22,28,27}, int64[4] size = {1,2,5,4}> { y = MaxUnpool <kernel_shape = "
        "[2,2], strides = [2,2]> (x, at, size) }");
  }
  add("dequantize_scale", 23,
      "g (float[3] s) => (float[a,b] y) <int8[2,3] x = {1,-2,3,4,5,-6}, int8[3] z = {1,0,-1}> { "
      "y = DequantizeLinear <axis = 1> (x, s, z) }");
  return all;
}

TEST(GradientVariants, AgreeWithFiniteDifferences) {
  int checked = 0;
  for (const Variant& v : Variants()) {
    const auto built = CaseOf(v);
    ASSERT_TRUE(built.ok()) << v.name << ": " << built.status().message();
    const NodeCase& c = *built;
    const GradientResult right = CheckGradient(c);
    EXPECT_EQ(right.kind, GradientResult::kChecked) << v.name << ": " << right.text;
    if (right.kind != GradientResult::kChecked) continue;
    ++checked;
    EXPECT_EQ(CheckGradient(c, 1.01).kind, GradientResult::kFailed)
        << v.name << ": a wrong gradient went unnoticed";
  }
  std::cout << fmt::format("figure gradient-variants-checked {}\n", checked);
}

}  // namespace
}  // namespace hyper::onnx_backend
