// Generated kernels of any number of modules, compiled by one run of the host compiler.
// Thread safety: none.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "codegen/compile.h"
#include "codegen/kernel_compiler.h"
#include "offload/placement.h"

namespace hyper::codegen {

class KernelCollection {
 public:
  // Fills (*symbols)[f][i] with the kernel of op i of function f (empty: not generated). After an
  // error the kernels of this module may be there in part.
  Status Add(const offload::PlacedModule& placed, std::vector<std::vector<std::string>>* symbols);
  // Errors as of CompileCpuKernels.
  Result<CompiledKernels> Compile(const CompileOptions& options) const;

 private:
  std::map<std::string, size_t> index_;  // symbol -> place in kernels_
  std::vector<KernelText> kernels_;
};

}  // namespace hyper::codegen
