// C text of dtypes, constants and scalar operators.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "ir/expr.h"
#include "ir/types.h"

namespace hyper::codegen {

// "float", "int64_t", "bool", ...; the type in memory and in expressions. f16 and bf16 are types of
// the prelude that compute in float and round when they are assigned.
std::string CType(ir::DType dtype);

// A literal of the dtype, exact for floats (hexadecimal), NaN and infinities included.
std::string FloatLiteral(ir::DType dtype, double value);
std::string IntLiteral(ir::DType dtype, int64_t value);

// Appends to `out` one "const T <prefix>_k = ...;" per inner node of `expr`, every line after
// `indent`, and returns the text of the root. inputs[i]: name of input i.
std::string EmitExpr(const ir::Expr& expr, const std::vector<std::string>& inputs,
                     const std::string& prefix, const std::string& indent, std::string* out);

// Rough work of one evaluation in simple operations.
int ExprCost(const ir::Expr& expr);

// Text of the start value and of one step `acc = acc (kind) value` of a reduction.
std::string ReduceInit(const std::string& kind, ir::DType dtype);
std::string ReduceStep(const std::string& kind, ir::DType dtype, const std::string& acc,
                       const std::string& value);
// omp simd reduction operator, or empty where the step must stay a plain loop.
std::string ReduceClause(const std::string& kind, ir::DType dtype);

}  // namespace hyper::codegen
