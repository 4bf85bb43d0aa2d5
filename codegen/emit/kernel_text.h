// Pieces every template prints: the function's head and the operand pointers.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "codegen/emit.h"

namespace hyper::codegen {

// The place of the symbol in a kernel's text until its hash is known.
inline constexpr std::string_view kSymbolMark = "@SYMBOL@";

// 'extern "C" void @SYMBOL@(...) {' and one typed pointer p<i> per operand; `reads` come first.
std::string KernelHead(const std::vector<lower::Operand>& operands, size_t reads);

// Hashes the text and puts the symbol into it.
EmittedKernel FinishKernel(std::string text);

// The part of CpuPrelude that the matrix template calls.
std::string MatrixPrelude();

// Templates, by GeneratedKernel::form.
Result<std::string> EmitRows(const lower::GeneratedKernel& kernel,
                             const std::vector<lower::Operand>& operands);  // map, rows
Result<std::string> EmitColumns(const lower::GeneratedKernel& kernel,
                                const std::vector<lower::Operand>& operands);  // cols
Result<std::string> EmitPool(const lower::GeneratedKernel& kernel,
                             const std::vector<lower::Operand>& operands);
Result<std::string> EmitIndexing(const lower::GeneratedKernel& kernel,
                                 const std::vector<lower::Operand>& operands);
Result<std::string> EmitScan(const lower::GeneratedKernel& kernel,
                             const std::vector<lower::Operand>& operands);
Result<std::string> EmitMatrix(const lower::GeneratedKernel& kernel,
                               const std::vector<lower::Operand>& operands);
Result<std::string> EmitContraction(const lower::GeneratedKernel& kernel,
                                    const std::vector<lower::Operand>& operands);

}  // namespace hyper::codegen
