#include "codegen/compile.h"

#include <algorithm>

#include <fmt/format.h>

#include "codegen/emit.h"
#include "codegen/kernel_collection.h"
#include "codegen/validate.h"

namespace hyper::codegen {
namespace {

Result<std::vector<std::pair<int64_t, int64_t>>> Extents(
    const std::vector<lower::Operand>& operands) {
  std::vector<std::pair<int64_t, int64_t>> extents;
  for (const lower::Operand& operand : operands) {
    HYPER_ASSIGN_OR_RETURN(const auto extent,
                           TouchedBytes(operand.view.type.dims, operand.view.strides,
                                        ir::DTypeBytes(operand.view.type.dtype)));
    extents.push_back(extent);
  }
  return extents;
}

// Two calls of one text may describe their operands differently; the code touches what both allow.
Status Narrow(KernelText& kernel, const std::vector<std::pair<int64_t, int64_t>>& extents) {
  if (extents.size() != kernel.extents.size()) {
    return Internal(fmt::format("kernel '{}' is called with {} and with {} operands", kernel.symbol,
                                kernel.extents.size(), extents.size()));
  }
  for (size_t i = 0; i < extents.size(); ++i) {
    kernel.extents[i].first = std::max(kernel.extents[i].first, extents[i].first);
    kernel.extents[i].second = std::min(kernel.extents[i].second, extents[i].second);
  }
  return Status::Ok();
}

}  // namespace

Status KernelCollection::Add(const offload::PlacedModule& placed,
                             std::vector<std::vector<std::string>>* symbols) {
  symbols->clear();
  for (const lower::LoweredFunction& function : placed.module.functions) {
    std::vector<std::string>& names = symbols->emplace_back(function.ops.size());
    for (size_t i = 0; i < function.ops.size(); ++i) {
      const lower::LoweredOp& op = function.ops[i];
      const auto* generated = std::get_if<lower::GeneratedKernel>(&op.kernel);
      if (generated == nullptr) continue;
      Result<EmittedKernel> emitted = EmitCpuKernel(*generated, op.operands);
      if (!emitted.ok()) {
        return emitted.status().WithContext(
            fmt::format("@{} op {} ({})", function.name, i, op.source));
      }
      HYPER_ASSIGN_OR_RETURN(auto extents, Extents(op.operands));
      names[i] = emitted->symbol;
      const auto [place, added] = index_.emplace(emitted->symbol, kernels_.size());
      if (added) {
        kernels_.push_back({emitted->symbol, std::move(emitted->text), std::move(extents)});
        continue;
      }
      KernelText& kernel = kernels_[place->second];
      if (kernel.text != emitted->text) {
        return Internal(fmt::format("two kernels are named '{}'", kernel.symbol));
      }
      HYPER_RETURN_IF_ERROR(Narrow(kernel, extents));
    }
  }
  return Status::Ok();
}

Result<CompiledKernels> KernelCollection::Compile(const CompileOptions& options) const {
  return CompileKernelTexts(CpuPrelude(), kernels_, options);
}

Result<CompiledKernels> CompileCpuKernels(const offload::PlacedModule& placed,
                                          const CompileOptions& options,
                                          std::vector<std::vector<std::string>>* symbols) {
  KernelCollection kernels;
  HYPER_RETURN_IF_ERROR(kernels.Add(placed, symbols));
  return kernels.Compile(options);
}

}  // namespace hyper::codegen
