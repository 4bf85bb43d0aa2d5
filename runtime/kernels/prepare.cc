// Chooses the maker of each instruction's kernel.
#include <fmt/format.h>

#include "codegen/call_record.h"
#include "runtime/kernels/kernels.h"

namespace hyper::runtime {
namespace {

// A generated kernel: one call of a compiled function per task.
class Generated : public PreparedKernel {
 public:
  Generated(codegen::KernelLibrary::Function function, std::vector<char*> operands)
      : function_(function), operands_(std::move(operands)) {}

  Status Run(const Team& team) override {
    team.Run(
        [](void* self, int64_t task, int64_t tasks) {
          const auto* kernel = static_cast<const Generated*>(self);
          kernel->function_(kernel->operands_.data(), task, tasks);
        },
        this);
    return Status::Ok();
  }

 private:
  codegen::KernelLibrary::Function function_;
  std::vector<char*> operands_;
};

}  // namespace

Result<std::unique_ptr<PreparedKernel>> PrepareInstruction(const program::Instruction& instruction,
                                                           const PrepareContext& context) {
  const std::vector<program::Operand> operands(instruction.operands().begin(),
                                               instruction.operands().end());
  switch (instruction.kernel_case()) {
    case program::Instruction::kGenerated: {
      const std::string& symbol = instruction.generated().symbol();
      if (context.library == nullptr) {
        return DataLoss(fmt::format("kernel '{}' is asked for, the bundle has no kernels", symbol));
      }
      HYPER_ASSIGN_OR_RETURN(const codegen::KernelLibrary::Function function,
                             context.library->Find(symbol));
      std::vector<char*> pointers;
      for (const program::Operand& operand : operands) {
        pointers.push_back(context.arena + operand.offset());
      }
      return std::unique_ptr<PreparedKernel>(
          std::make_unique<Generated>(function, std::move(pointers)));
    }
    case program::Instruction::kReference: {
      const program::ReferenceCall& call = instruction.reference();
      return Guard([&]() -> Result<std::unique_ptr<PreparedKernel>> {
        HYPER_ASSIGN_OR_RETURN(
            const ir::Attributes attributes,
            codegen::DecodeAttributes(call.attributes(), instruction.operands()));
        return PrepareReference(call.op(), attributes, call.op_id(), operands, context);
      });
    }
    case program::Instruction::kLibrary: {
      const program::LibraryCall& call = instruction.library();
      return Guard([&]() -> Result<std::unique_ptr<PreparedKernel>> {
        HYPER_ASSIGN_OR_RETURN(
            const ir::Attributes attributes,
            codegen::DecodeAttributes(call.attributes(), instruction.operands()));
        return PrepareLibrary(call, attributes, operands, context);
      });
    }
    case program::Instruction::kMarker:
    case program::Instruction::KERNEL_NOT_SET: break;
  }
  return DataLoss("instruction without a kernel");
}

}  // namespace hyper::runtime
