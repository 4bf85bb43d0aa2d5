// The names that a tensor of a file goes by (part of import.h).
// Thread safety: pure functions of their arguments.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import.h"
#include "frontend/onnx/parameter_uses.h"

namespace hyper::onnx_frontend {

// Gives second names, from the scopes of the nodes that read them, to tensors of the plan whose own
// name says nothing. Two tensors never get one and the same.
void NameAliases(const UsesByName& uses, ParameterPlan* plan);

// Every name that rules know a tensor by: its own, the second one, those of tensors tied to it.
std::vector<std::string> KnownNames(const ParameterDecision& d);
bool MatchesName(const std::string& glob, const ParameterDecision& d);

}  // namespace hyper::onnx_frontend
