// Values that model.bind gives to inputs, in the types of the inputs (part of import.h).
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/diagnostics.h"
#include "frontend/onnx/import.h"

namespace hyper::onnx_frontend {

struct BoundValues {
  std::map<std::string, ir::HostTensor> values;  // by input
  std::map<std::string, int64_t> dims;  // of the options, and those that shapes of values give
};

// Refused values are left out; errors stand where the user wrote them.
BoundValues BindValues(const LoadedModel& model, const ImportOptions& options,
                       Diagnostics* diagnostics);

// Of a dim without an extent: its own name, or "<input>.<axis>".
std::string DimName(const onnx::ValueInfoProto& input, int axis);

}  // namespace hyper::onnx_frontend
