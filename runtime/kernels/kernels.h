// Turns instructions into prepared kernels: everything that can be decided at load is decided here.
// Thread safety: preparation on one thread; a PreparedKernel runs on its executor's thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
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

// Scratch memory outside the arena that all library kernels of an executor share, since they run
// one after another: sized at load to the largest request.
class Scratch {
 public:
  // `bind` is called with the block's address by Allocate.
  void Request(int64_t bytes, std::function<void(char*)> bind) {
    bytes_ = std::max(bytes_, bytes);
    bindings_.push_back(std::move(bind));
  }
  Status Allocate() {
    HYPER_ASSIGN_OR_RETURN(block_, Arena::Create(bytes_));
    for (const auto& bind : bindings_) bind(block_->data());
    bindings_.clear();
    return Status::Ok();
  }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
  std::vector<std::function<void(char*)>> bindings_;
  std::unique_ptr<Arena> block_;
};

struct PrepareContext {
  char* arena = nullptr;
  Team* team = nullptr;
  Scratch* scratch = nullptr;
  const codegen::KernelLibrary* library = nullptr;  // null without generated kernels
  bool reference_kernels = false;
};

Result<std::unique_ptr<PreparedKernel>> PrepareInstruction(const program::Instruction& instruction,
                                                           const PrepareContext& context);

// One maker per kernel family; `PrepareInstruction` chooses.
using Operands = std::span<const program::Operand>;
Result<std::unique_ptr<PreparedKernel>> PrepareMatmul(const ir::Attributes& attributes,
                                                      Operands operands,
                                                      const PrepareContext& context);
Result<std::unique_ptr<PreparedKernel>> PrepareConvolution(const std::string& op,
                                                           const ir::Attributes& attributes,
                                                           Operands operands,
                                                           const PrepareContext& context);
Result<std::unique_ptr<PreparedKernel>> PrepareReference(const std::string& op,
                                                         const ir::Attributes& attributes,
                                                         int64_t op_id, Operands operands,
                                                         const PrepareContext& context);

ir::Attributes DecodeAttributes(
    const google::protobuf::RepeatedPtrField<program::Attribute>& encoded, Operands operands);

// Row-major copies between a strided place and dense memory.
void CopyToDense(const program::Operand& place, const char* arena, std::byte* dense);
void CopyFromDense(const program::Operand& place, const std::byte* dense, char* arena);

}  // namespace hyper::runtime
