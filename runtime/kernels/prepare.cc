// Chooses the maker of each instruction's kernel and decodes its attributes.
#include <fmt/format.h>

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

ir::Attributes DecodeAttributes(
    const google::protobuf::RepeatedPtrField<program::Attribute>& encoded, Operands operands) {
  ir::Attributes out;
  for (const program::Attribute& a : encoded) {
    switch (a.value_case()) {
      case program::Attribute::kIntValue: out.Set(a.name(), a.int_value()); break;
      case program::Attribute::kFloatValue: out.Set(a.name(), a.float_value()); break;
      case program::Attribute::kBoolValue: out.Set(a.name(), a.bool_value()); break;
      case program::Attribute::kStringValue: out.Set(a.name(), a.string_value()); break;
      case program::Attribute::kDimsValue:
        out.Set(a.name(), ir::Dims(a.dims_value().values().begin(), a.dims_value().values().end()));
        break;
      case program::Attribute::kDtypeValue: out.Set(a.name(), DTypeOf(a.dtype_value())); break;
      case program::Attribute::kExprValue: {
        std::vector<ir::DType> dtypes;
        for (const program::Operand& operand : operands) dtypes.push_back(DTypeOf(operand.dtype()));
        Result<ir::Expr> expr = ir::Expr::Parse(a.expr_value(), dtypes);
        HYPER_CHECK(expr.ok(), "expression in the program: " + expr.status().message());
        out.Set(a.name(), std::move(expr).value());
        break;
      }
      case program::Attribute::kTensorValue: {
        const ir::TensorType type{DTypeOf(a.tensor_dtype()),
                                  ir::Dims(a.tensor_dims().begin(), a.tensor_dims().end())};
        HYPER_CHECK(type.bytes() == static_cast<int64_t>(a.tensor_value().size()),
                    "tensor attribute of the wrong size");
        out.Set(a.name(), ir::HostTensor(type, std::as_bytes(std::span(a.tensor_value().data(),
                                                                       a.tensor_value().size()))));
        break;
      }
      case program::Attribute::VALUE_NOT_SET: break;
    }
  }
  return out;
}

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
      return Guard([&] {
        return PrepareReference(call.op(), DecodeAttributes(call.attributes(), operands),
                                call.op_id(), operands, context);
      });
    }
    case program::Instruction::kLibrary: {
      const program::LibraryCall& call = instruction.library();
      return Guard([&]() -> Result<std::unique_ptr<PreparedKernel>> {
        const ir::Attributes attributes = DecodeAttributes(call.attributes(), operands);
        if (context.reference_kernels) {
          return PrepareReference(call.op(), attributes, -1, operands, context);
        }
        if (call.primitive() == "onednn.matmul")
          return PrepareMatmul(attributes, operands, context);
        if (call.primitive() == "onednn.conv") {
          return PrepareConvolution(call.op(), attributes, operands, context);
        }
        return DataLoss(
            fmt::format("unknown library kernel '{}'; this runtime has onednn.matmul, "
                        "onednn.conv",
                        call.primitive()));
      });
    }
    case program::Instruction::kMarker:
    case program::Instruction::KERNEL_NOT_SET: break;
  }
  return DataLoss("instruction without a kernel");
}

}  // namespace hyper::runtime
