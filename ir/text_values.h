// Printing and parsing of types and attribute values in the text form.
// Thread safety: pure functions.
#pragma once

#include <span>
#include <string>

#include "ir/attribute.h"
#include "ir/text_lexer.h"

namespace hyper::ir {

std::string AttributeText(const Attribute& attribute);
std::string AttributesText(const Attributes& attributes);  // "{a = 1, b = [2,3]}" or empty
Result<TensorType> ParseType(Lexer& lexer);
// `operand_dtypes`: what x0, x1, ... of an expression are.
Result<Attribute> ParseAttribute(Lexer& lexer, std::span<const DType> operand_dtypes);

}  // namespace hyper::ir
