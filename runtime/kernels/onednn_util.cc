#include "runtime/kernels/onednn_util.h"

namespace hyper::runtime {

dnnl::engine CpuEngine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

ir::Dims NormalizedStrides(const ir::Dims& dims, const ir::Dims& strides) {
  ir::Dims result = strides;
  for (size_t d = 0; d < dims.size(); ++d) {
    if (dims[d] != 1) continue;
    // As if this dim stood right outside the next larger run: any value >= the extent below works.
    int64_t inner = 1;
    for (size_t e = d + 1; e < dims.size(); ++e) {
      if (dims[e] > 1) inner = std::max(inner, dims[e] * strides[e]);
    }
    result[d] = inner;
  }
  return result;
}

}  // namespace hyper::runtime
