// Texts of kernels -> one shared object, by the host compiler, with a cache on disk.
// The object's bytes depend on the texts, the options and the compiler only.
// Thread safety: pure functions; several processes may share a cache folder.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "codegen/compile.h"

namespace hyper::codegen {

struct KernelText {
  std::string symbol;
  std::string text;  // definition of the function
  // Per operand: bytes it may touch, relative to its pointer.
  std::vector<std::pair<int64_t, int64_t>> extents;
};

// A cache that cannot be written is told in CompiledKernels::cache_note, no error.
// `kernels`: distinct symbols. kInternal with the compiler's messages when it refuses a text.
Result<CompiledKernels> CompileKernelTexts(const std::string& prelude,
                                           std::vector<KernelText> kernels,
                                           const CompileOptions& options);

}  // namespace hyper::codegen
