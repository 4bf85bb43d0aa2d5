// Text form of the IR (documented in ir/text.md): print(parse(t)) == t, and the verifier.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "ir/graph.h"

namespace hyper::ir {

std::string Print(const Module& module);
std::string Print(const Function& function);
// Errors carry line:column and what was expected. `file_name` is for messages only.
Result<Module> Parse(std::string_view text, std::string_view file_name = "<ir>");

// Everything that must hold between passes: known ops, arity, attribute kinds, inferred types equal
// the stored ones, definitions before uses, aliases valid, ids in range.
Status Verify(const Function& function);
Status Verify(const Module& module);

}  // namespace hyper::ir
