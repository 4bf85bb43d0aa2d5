// Parameters that a file holds several times: tied again as model.tie asks, or suspected (part of
// import.h). Exporters store tied weights once per use, transposed where a use needs that.
// Thread safety: pure functions of their arguments.
#pragma once

#include <optional>
#include <vector>

#include "base/diagnostics.h"
#include "frontend/onnx/import.h"

namespace hyper::onnx_frontend {

// How `other` repeats the elements of `first`, bit for bit, in the same dims or (matrices) in
// swapped ones. Of a symmetric matrix: as it is.
enum class Repeat { kNot, kSame, kTransposed };
Repeat RepeatOf(const ir::HostTensor& first, const ir::HostTensor& other);

// Merges every group of `groups` into its first tensor: all places, views and operands of the
// others refer to that one afterwards, and `ParameterDecision::tied` names them. `plan` holds
// collected tensors about which nothing is decided yet; `listing` is the decided plan of the same
// file without ties, whose names, second names and kinds the user knows.
// Errors, at the names' places: unknown names, what is no parameter, other types, other values. A
// group with an error is left as it is.
void TieParameters(const std::vector<TieGroup>& groups, const ParameterPlan& listing,
                   const std::string& model_path, Diagnostics* diagnostics, ParameterPlan* plan);

// A note that suggests the line of model.tie for those of `candidates` that repeat one another
// (tensors whose elements are all equal say nothing); nullopt when none do. Reads a few elements of
// each tensor, and whole ones only where those agree.
std::optional<std::string> SuggestTies(const std::vector<const ParameterDecision*>& candidates);

}  // namespace hyper::onnx_frontend
