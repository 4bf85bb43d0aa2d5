// Shared by the single-op templates: a walk over the elements of one operand and index arithmetic
// as text.
// Thread safety: value types.
#pragma once

#include <string>
#include <vector>

#include "codegen/emit/kernel_text.h"
#include "codegen/emit/scalar.h"

namespace hyper::codegen {

using Names = std::vector<std::string>;

// prefix0, prefix1, ...
Names NumberedNames(const std::string& prefix, size_t n);
// "p3[a * 4 + b]"
std::string At(const std::vector<lower::Operand>& operands, size_t operand, const Names& index);

// Prints "for (u ...) {" over the product of `extents` split over tasks and "const i64 name = ...;"
// for each. The caller prints the body at four spaces and the two closing braces by Close.
std::string OpenUnits(const ir::Dims& extents, const Names& names);
inline std::string CloseUnits() { return "  }\n}\n"; }

// Dims of a view from the far to the near stride.
std::vector<size_t> FarToNear(const lower::View& view);

}  // namespace hyper::codegen
