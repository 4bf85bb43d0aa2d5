// From a placed module to the content of a bundle: emits and compiles kernels, builds the Program.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "codegen/bundle.h"
#include "codegen/cpu_features.h"
#include "offload/placement.h"

namespace hyper::codegen {

struct CompileOptions {
  std::string march = "native";  // resolved to a feature list
  std::string compiler = "c++";  // host compiler
  std::string cache_dir;         // kernel cache; empty: none; gone without where it cannot be used
  int jobs = 2;                  // translation units compiled at once
};

// The march that "native" means here (for example "sapphirerapids") and its features as
// /proc/cpuinfo names them; unknown names are refused with the known ones.
struct MarchInfo {
  std::string march;
  std::vector<std::string> features;
};
Result<MarchInfo> ResolveMarch(const std::string& march, const std::string& compiler);
// `source` is for reading; `object` the bytes of a shared object, the same for the same kernels and
// options whatever `jobs`, `cache_dir` and the folder. Both are empty without generated kernels.
struct CompiledKernels {
  std::string source;
  std::string object;
  std::string cache_note;  // why the cache keeps nothing of it; empty: it does, or there is none
};
// Fills (*symbols)[f][i] with the kernel of op i of function f (empty: not generated).
// kFailedPrecondition: no compiler; kInternal: the compiler refused our text (with its messages).
Result<CompiledKernels> CompileCpuKernels(const offload::PlacedModule& placed,
                                          const CompileOptions& options,
                                          std::vector<std::vector<std::string>>* symbols);

// Slots, instructions and buckets; symbols[f][i] names the generated kernel of op i in function f.
// The caller adds `losses`; micro_batch is the common extent of dim 0 of the input slots, 0 where
// they differ or there are none, and compute_dtype is F64 when a parameter is.
// Results are no slots: they are found in their subprogram.
Result<program::Program> BuildProgram(const offload::PlacedModule& placed,
                                      const std::vector<std::vector<std::string>>& symbols);

// Initial values of program.slots, undefined where none is stored: parameters, frozen weights and
// states from placed.module.source, constants from their roots. kInternal when one is missing.
Result<std::vector<ir::HostTensor>> CollectSlotData(const offload::PlacedModule& placed,
                                                    const program::Program& program);

}  // namespace hyper::codegen
