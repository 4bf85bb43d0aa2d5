// Which inputs of a node test get their value at compile time.
// Thread safety: pure functions.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "base/status.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/load.h"
#include "tests/onnx_backend/cases.h"

namespace hyper::onnx_backend {

// Imports with what the importer asks for bound, nothing else: integers and truth values, and what
// a node's importer declares as known at compile time. Floats that arrive as data stay data.
// `options_with` makes the options for a set of bound inputs; `*bound` is the last one tried, and
// `*message` the first error when it is refused.
Result<onnx_frontend::ImportedModel> ImportBinding(
    const NodeCase& node_case, const onnx_frontend::LoadedModel& model,
    const std::function<Result<onnx_frontend::ImportOptions>(const std::set<std::string>& bound)>&
        options_with,
    std::set<std::string>* bound, std::string* message);

// The first error, or the status' own message.
std::string FirstError(const Diagnostics& diagnostics, const Status& status);

}  // namespace hyper::onnx_backend
