// Turns instructions into prepared kernels: everything that can be decided at load is decided here.
// Thread safety: preparation on one thread; a PreparedKernel runs on its executor's thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "codegen/bundle.h"
#include "codegen/program.pb.h"
#include "ir/attribute.h"
#include "ir/types.h"
#include "runtime/executor.h"
#include "runtime/program_io.h"

namespace hyper::runtime {

struct PrepareContext {
  char* arena = nullptr;
  Team* team = nullptr;
  const codegen::KernelLibrary* library = nullptr;  // null without generated kernels
  bool reference_kernels = false;
  int planned_threads = 0;           // Program.threads, for messages
  int64_t* staging_bytes = nullptr;  // adds what reference kernels keep beside the arena
};

// kResourceExhausted: a library kernel needs more workspace than the program gives it.
Result<std::unique_ptr<PreparedKernel>> PrepareInstruction(const program::Instruction& instruction,
                                                           const PrepareContext& context);

using Operands = std::span<const program::Operand>;
Result<std::unique_ptr<PreparedKernel>> PrepareLibrary(const program::LibraryCall& call,
                                                       const ir::Attributes& attributes,
                                                       Operands operands,
                                                       const PrepareContext& context);
// Operands that are not dense go by way of copies beside the arena: this is for checks and for
// operands without elements.
Result<std::unique_ptr<PreparedKernel>> PrepareReference(const std::string& op,
                                                         const ir::Attributes& attributes,
                                                         int64_t op_id, Operands operands,
                                                         const PrepareContext& context);

// Row-major copies between a strided place and dense memory.
void CopyToDense(const program::Operand& place, const char* arena, std::byte* dense);
void CopyFromDense(const program::Operand& place, const std::byte* dense, char* arena);

}  // namespace hyper::runtime
