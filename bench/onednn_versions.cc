// Times the library calls that dominate a training step, written for oneDNN 2 and 3 alike: products
// of a GPT-2 block and convolutions of ResNet-18 (channels-last activations, the library's own
// weight layout). Prints one line per call and the sum. Built twice by onednn_versions.sh.
#include <chrono>
#include <cstdio>
#include <vector>

#include "onednn_call.h"

using dnnl::memory;
using Tag = memory::format_tag;
constexpr auto kF32 = memory::data_type::f32;

namespace {

// Best of several runs, milliseconds.
double Time(const dnnl::primitive& primitive, const std::unordered_map<int, memory>& arguments) {
  double best = 1e9;
  for (int i = 0; i < 12; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    primitive.execute(Stream(), arguments);
    Stream().wait();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    if (i >= 2 && took.count() < best) best = took.count();
  }
  return best;
}

double Matmul(int64_t m, int64_t k, int64_t n, bool transposed) {
  const memory::desc a({m, k}, kF32, Tag::ab);
  const memory::desc b({k, n}, kF32, transposed ? Tag::ba : Tag::ab);
  const memory::desc y({m, n}, kF32, Tag::ab);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc pd(Engine(), a, b, y);
#else
  const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(a, b, y), Engine());
#endif
  return Time(
      dnnl::matmul(pd),
      {{DNNL_ARG_SRC, Filled(a)}, {DNNL_ARG_WEIGHTS, Filled(b)}, {DNNL_ARG_DST, Filled(y)}});
}

struct Shape {
  int64_t n, c, size, o, kernel, stride, pad;
};

// Forward, input gradient and weight gradient; their sum.
double Convolution(const Shape& s) {
  const int64_t out = (s.size + 2 * s.pad - s.kernel) / s.stride + 1;
  const memory::desc x({s.n, s.c, s.size, s.size}, kF32, Tag::nhwc);
  const memory::desc w({s.o, s.c, s.kernel, s.kernel}, kF32, Tag::any);
  const memory::desc y({s.n, s.o, out, out}, kF32, Tag::nhwc);
  const memory::dims strides = {s.stride, s.stride};
  const memory::dims pads = {s.pad, s.pad};
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const auto training = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::convolution_forward::primitive_desc forward(Engine(), training, algorithm, x, w, y,
                                                          strides, pads, pads);
  const dnnl::convolution_backward_data::primitive_desc data(Engine(), algorithm, x, w, y, strides,
                                                             pads, pads, forward);
  const dnnl::convolution_backward_weights::primitive_desc weights(Engine(), algorithm, x, w, y,
                                                                   strides, pads, pads, forward);
#else
  const dnnl::convolution_forward::primitive_desc forward(
      dnnl::convolution_forward::desc(training, algorithm, x, w, y, strides, pads, pads), Engine());
  const dnnl::convolution_backward_data::primitive_desc data(
      dnnl::convolution_backward_data::desc(algorithm, x, w, y, strides, pads, pads), Engine(),
      forward);
  const dnnl::convolution_backward_weights::primitive_desc weights(
      dnnl::convolution_backward_weights::desc(algorithm, x, w, y, strides, pads, pads), Engine(),
      forward);
#endif
  return Time(dnnl::convolution_forward(forward),
              {{DNNL_ARG_SRC, Filled(x)},
               {DNNL_ARG_WEIGHTS, Filled(forward.weights_desc())},
               {DNNL_ARG_DST, Filled(y)}}) +
         Time(dnnl::convolution_backward_data(data),
              {{DNNL_ARG_DIFF_DST, Filled(y)},
               {DNNL_ARG_WEIGHTS, Filled(data.weights_desc())},
               {DNNL_ARG_DIFF_SRC, Filled(x)}}) +
         Time(dnnl::convolution_backward_weights(weights),
              {{DNNL_ARG_DIFF_DST, Filled(y)},
               {DNNL_ARG_SRC, Filled(x)},
               {DNNL_ARG_DIFF_WEIGHTS, Filled(weights.diff_weights_desc())}});
}

}  // namespace

int main() {
  const dnnl_version_t* version = dnnl_version();
  std::printf("oneDNN %d.%d.%d\n", version->major, version->minor, version->patch);
  double products = 0;
  for (const bool transposed : {false, true}) {
    products += Matmul(1024, 768, 2304, transposed) + Matmul(1024, 768, 768, transposed) +
                Matmul(1024, 768, 3072, transposed) + Matmul(1024, 3072, 768, transposed);
  }
  std::printf("  products of a GPT-2 block      %8.1f ms\n", products);
  double convolutions = 0;
  for (const Shape& shape : std::vector<Shape>{{16, 3, 224, 64, 7, 2, 3},
                                               {16, 64, 56, 64, 3, 1, 1},
                                               {16, 128, 28, 128, 3, 1, 1},
                                               {16, 256, 14, 256, 3, 1, 1},
                                               {16, 512, 7, 512, 3, 1, 1},
                                               {16, 64, 56, 128, 3, 2, 1}}) {
    convolutions += Convolution(shape);
  }
  std::printf("  convolutions of ResNet-18      %8.1f ms\n", convolutions);
  return 0;
}
