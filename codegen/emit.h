// The kernel emitter: a fused group and its operand views -> one C++ function
//   extern "C" void <symbol>(char* const* operands, int64_t task, int64_t tasks)
// operands[i] points at element (0,..,0) of operand i. Tasks split the work; any number of tasks
// gives the same bits. The emitted text is self-contained (its own vectorisable exp, log, tanh,
// erf, Philox ...) and shares no code with ir/reference.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "lower/lowered.h"

namespace hyper::codegen {

struct EmittedKernel {
  std::string symbol;  // "k_" + hash of the text: identical kernels share it
  std::string text;    // the function's definition, without the common prelude
};

Result<EmittedKernel> EmitCpuKernel(const lower::GeneratedKernel& kernel,
                                    const std::vector<lower::Operand>& operands);

// Text that must stand once before the kernels of a translation unit.
std::string CpuPrelude();

}  // namespace hyper::codegen
