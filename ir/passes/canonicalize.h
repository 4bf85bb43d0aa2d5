// Rules of the canonicalize pass; each says whether it changed something.
// Thread safety: none.
#pragma once

#include "ir/op_def.h"
#include "ir/passes/passes.h"

namespace hyper::ir {

// Chains of reshape, transpose and broadcast become one; moved splats become other splats. Changes
// the node in place, its output type stays.
bool CanonicalizeShapeOp(const Function& f, Node& node);

// The output equals the only input in type and value.
bool IsNoOp(const Function& f, const Node& node);

// map(T(a), T(b)) read only by inverses of the transpose or reshape T: computes on a and b instead
// and replaces the readers.
bool MoveMapAcross(Function& f, Node& map, const std::vector<NodeId>& users,
                   Replacements& replacements);

}  // namespace hyper::ir
