// Library and reference calls of a program against the records of their core ops: what a file says
// about attributes and operands is checked before a kernel trusts it.
// Thread safety: pure functions.
#pragma once

#include <google/protobuf/repeated_field.h>

#include "base/status.h"
#include "codegen/program.pb.h"
#include "ir/attribute.h"

namespace hyper::codegen {

// Expressions take the element types of `operands`. kDataLoss for one that cannot be read, and for
// a tensor whose bytes do not fit its type.
Result<ir::Attributes> DecodeAttributes(
    const google::protobuf::RepeatedPtrField<program::Attribute>& encoded,
    const google::protobuf::RepeatedPtrField<program::Operand>& operands);

// A call of the core op `op`: attributes as its record declares them (all there, each of its kind,
// none besides), and operands (inputs, then outputs, then perhaps a workspace) of the types that it
// infers. kDataLoss says what is wrong.
Status CheckCall(const std::string& op,
                 const google::protobuf::RepeatedPtrField<program::Attribute>& attributes,
                 const google::protobuf::RepeatedPtrField<program::Operand>& operands);

}  // namespace hyper::codegen
