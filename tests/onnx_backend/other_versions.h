// Node tests rewritten to other versions of their operator, for checks that do not read the
// recorded outputs.
// Thread safety: pure functions.
#pragma once

#include "tests/onnx_backend/cases.h"

namespace hyper::onnx_backend {

// The oldest opset from 7 on in which the operator of the default domain has since-version
// `since`; 0: none has.
int OpsetOf(const std::string& op, int since);

// The case in that opset, with its node as version `since` of the operator writes it: operands that
// the version does not have become its attributes of the same name (the axes of a reduction, the
// bounds of Slice and Clip), and attributes become operands; outputs and attributes that it does
// not know are left out, and defaults that changed are written out. Fails with what the version
// cannot say: an attribute without which it is not complete, an operand that is data.
Result<NodeCase> AtVersion(const NodeCase& node_case, int since);

}  // namespace hyper::onnx_backend
