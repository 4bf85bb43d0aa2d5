// RAII and small helpers around oneDNN's C API. The C++ API builds a hash map per execution; the C
// one takes a plain array that is prepared once.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/status.h"
#include "ir/types.h"
#include "runtime/kernels/library_blocks.h"

namespace hyper::runtime {

// The process-wide CPU engine and a stream on it (executors of loopback ranks have their own).
dnnl::engine CpuEngine();

// A memory descriptor of f32 elements with explicit strides.
inline dnnl::memory::desc StridedF32(const ir::Dims& dims, const ir::Dims& strides) {
  return {dims, dnnl::memory::data_type::f32, strides};
}

// One primitive with its argument list; handles are set once. Every execution of the library goes
// through Run.
class OneDnnCall {
 public:
  OneDnnCall() = default;
  OneDnnCall(dnnl::primitive primitive, std::vector<std::pair<int, dnnl::memory>> arguments)
      : primitive_(std::move(primitive)), arguments_(std::move(arguments)) {
    for (auto& [index, memory] : arguments_) raw_.push_back({index, memory.get()});
  }
  explicit operator bool() const { return !raw_.empty(); }

  Status Run(dnnl_stream_t stream) const {
    const LibraryCall call;
    const dnnl_status_t status = dnnl_primitive_execute(primitive_.get(), stream,
                                                        static_cast<int>(raw_.size()), raw_.data());
    if (status == dnnl_success) return Status::Ok();
    return Internal(
        fmt::format("oneDNN primitive failed with status {}", static_cast<int>(status)));
  }

 private:
  dnnl::primitive primitive_;
  std::vector<std::pair<int, dnnl::memory>> arguments_;
  std::vector<dnnl_exec_arg_t> raw_;
};

// Strides of extents of 1 say nothing; they become what a dense layout would have, so that layout
// checks of the library see through them. `order` is by descending stride.
ir::Dims NormalizedStrides(const ir::Dims& dims, const ir::Dims& strides);

}  // namespace hyper::runtime
