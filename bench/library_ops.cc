// Times oneDNN's pooling, normalisation and softmax at the shapes of the benchmark's models,
// forward as for training and backward: ResNet-18 at batch 16 (channels-last) and GPT-2 small at 4
// x 256. Prints "LAYER MILLISECONDS" per kind of layer: the sum over one training step. Run by
// library_ops.py, which sets them beside the generated kernels of the same layers.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <unordered_map>
#include <utility>
#include <vector>

#include "onednn_call.h"

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;
using Tag = memory::format_tag;
constexpr auto kF32 = memory::data_type::f32;
constexpr auto kTraining = dnnl::prop_kind::forward_training;

namespace {

// Median of several runs, milliseconds. The operands are swept out of the caches in between, as in
// a step, where hundreds of megabytes lie between two calls.
double Time(const dnnl::primitive& primitive, const Arguments& arguments) {
  static std::vector<char> sweep(size_t{256} << 20);
  std::vector<double> times;
  for (int i = 0; i < 9; ++i) {
    for (size_t k = 0; k < sweep.size(); k += 64) ++sweep[k];
    const auto begin = std::chrono::steady_clock::now();
    primitive.execute(Stream(), arguments);
    Stream().wait();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (i >= 2) times.push_back(took.count());
  }
  std::nth_element(times.begin(), times.begin() + 3, times.end());
  return times[3];
}

// With `relu`, the following Relu is part of both calls.
double BatchNorm(int64_t channels, int64_t size, bool relu) {
  const memory::desc x({16, channels, size, size}, kF32, Tag::nhwc);
  const memory::desc parameter({channels}, kF32, Tag::a);
  auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  if (relu) flags |= dnnl::normalization_flags::fuse_norm_relu;
  const dnnl::batch_normalization_forward::primitive_desc forward(Engine(), kTraining, x, x, 1e-5F,
                                                                  flags);
  const dnnl::batch_normalization_backward::primitive_desc backward(
      Engine(), dnnl::prop_kind::backward, x, x, x, 1e-5F, flags, forward);
  const memory in = Filled(x), out = Filled(x), scale = Filled(parameter),
               shift = Filled(parameter), mean = Filled(forward.mean_desc()),
               variance = Filled(forward.variance_desc()),
               workspace = Filled(forward.workspace_desc(), false);
  return Time(dnnl::batch_normalization_forward(forward), {{DNNL_ARG_SRC, in},
                                                           {DNNL_ARG_DST, out},
                                                           {DNNL_ARG_SCALE, scale},
                                                           {DNNL_ARG_SHIFT, shift},
                                                           {DNNL_ARG_MEAN, mean},
                                                           {DNNL_ARG_VARIANCE, variance},
                                                           {DNNL_ARG_WORKSPACE, workspace}}) +
         Time(dnnl::batch_normalization_backward(backward), {{DNNL_ARG_SRC, in},
                                                             {DNNL_ARG_DIFF_DST, out},
                                                             {DNNL_ARG_DIFF_SRC, Filled(x)},
                                                             {DNNL_ARG_SCALE, scale},
                                                             {DNNL_ARG_MEAN, mean},
                                                             {DNNL_ARG_VARIANCE, variance},
                                                             {DNNL_ARG_DIFF_SCALE, scale},
                                                             {DNNL_ARG_DIFF_SHIFT, shift},
                                                             {DNNL_ARG_WORKSPACE, workspace}});
}

double MaxPool() {
  const memory::desc x({16, 64, 112, 112}, kF32, Tag::nhwc), y({16, 64, 56, 56}, kF32, Tag::nhwc);
  const memory::dims strides = {2, 2}, window = {3, 3}, none = {0, 0}, pads = {1, 1};
  const auto algorithm = dnnl::algorithm::pooling_max;
  const dnnl::pooling_forward::primitive_desc forward(Engine(), kTraining, algorithm, x, y, strides,
                                                      window, none, pads, pads);
  const dnnl::pooling_backward::primitive_desc backward(Engine(), algorithm, x, y, strides, window,
                                                        none, pads, pads, forward);
  const memory workspace = Filled(forward.workspace_desc(), false);
  const dnnl::pooling_forward run(forward);
  const Arguments arguments = {
      {DNNL_ARG_SRC, Filled(x)}, {DNNL_ARG_DST, Filled(y)}, {DNNL_ARG_WORKSPACE, workspace}};
  return Time(run, arguments) +
         Time(dnnl::pooling_backward(backward), {{DNNL_ARG_DIFF_DST, Filled(y)},
                                                 {DNNL_ARG_DIFF_SRC, Filled(x)},
                                                 {DNNL_ARG_WORKSPACE, workspace}});
}

double LayerNorm() {
  const memory::desc x({4, 256, 768}, kF32, Tag::abc), parameter({768}, kF32, Tag::a);
  const auto flags = dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift;
  const dnnl::layer_normalization_forward::primitive_desc forward(Engine(), kTraining, x, x, 1e-5F,
                                                                  flags);
  const dnnl::layer_normalization_backward::primitive_desc backward(
      Engine(), dnnl::prop_kind::backward, x, x, x, 1e-5F, flags, forward);
  const memory in = Filled(x), out = Filled(x), scale = Filled(parameter),
               shift = Filled(parameter), mean = Filled(forward.mean_desc()),
               variance = Filled(forward.variance_desc());
  return Time(dnnl::layer_normalization_forward(forward), {{DNNL_ARG_SRC, in},
                                                           {DNNL_ARG_DST, out},
                                                           {DNNL_ARG_SCALE, scale},
                                                           {DNNL_ARG_SHIFT, shift},
                                                           {DNNL_ARG_MEAN, mean},
                                                           {DNNL_ARG_VARIANCE, variance}}) +
         Time(dnnl::layer_normalization_backward(backward), {{DNNL_ARG_SRC, in},
                                                             {DNNL_ARG_DIFF_DST, out},
                                                             {DNNL_ARG_DIFF_SRC, Filled(x)},
                                                             {DNNL_ARG_SCALE, scale},
                                                             {DNNL_ARG_SHIFT, shift},
                                                             {DNNL_ARG_MEAN, mean},
                                                             {DNNL_ARG_VARIANCE, variance},
                                                             {DNNL_ARG_DIFF_SCALE, scale},
                                                             {DNNL_ARG_DIFF_SHIFT, shift}});
}

double Softmax() {
  const memory::desc x({4, 12, 256, 256}, kF32, Tag::abcd);
  const auto algorithm = dnnl::algorithm::softmax_accurate;
  const dnnl::softmax_forward::primitive_desc forward(Engine(), kTraining, algorithm, x, x, 3);
  const dnnl::softmax_backward::primitive_desc backward(Engine(), algorithm, x, x, x, 3, forward);
  const memory y = Filled(x);
  return Time(dnnl::softmax_forward(forward), {{DNNL_ARG_SRC, Filled(x)}, {DNNL_ARG_DST, y}}) +
         Time(dnnl::softmax_backward(backward),
              {{DNNL_ARG_DST, y}, {DNNL_ARG_DIFF_DST, Filled(x)}, {DNNL_ARG_DIFF_SRC, Filled(x)}});
}

}  // namespace

int main() {
  // The 20 BatchNorms of ResNet-18 at 224 x 224; 9 of them have their Relu behind them at once (the
  // other Relus follow an addition, which the library cannot take in for training).
  double batch_norm = BatchNorm(64, 112, true);
  for (const auto& [channels, size] :
       std::vector<std::pair<int64_t, int64_t>>{{64, 56}, {128, 28}, {256, 14}, {512, 7}}) {
    batch_norm += 2 * BatchNorm(channels, size, true) + 2 * BatchNorm(channels, size, false);
    if (channels > 64) batch_norm += BatchNorm(channels, size, false);  // of the shortcut
  }
  std::printf("batch_norm %.2f\n", batch_norm);
  std::printf("max_pool %.2f\n", MaxPool());
  std::printf("layer_norm %.2f\n", 25 * LayerNorm());
  std::printf("softmax %.2f\n", 12 * Softmax());
  return 0;
}
