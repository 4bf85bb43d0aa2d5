// Writes trained values back into the model they came from.
// Thread safety: pure functions; two exports must not write one path at the same time.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/status.h"
#include "frontend/onnx/import.h"
#include "ir/types.h"

namespace hyper::onnx_frontend {

// The model with the data of every persistent tensor taken out, serialized. Where each tensor
// belongs stands in its metadata (key "hyper.tensors"), so that it is all that ExportTrained needs.
// kResourceExhausted when what remains does not fit into a protobuf message. A tensor with its
// place inside a function of the file makes it the model with its functions inlined; `diagnostics`
// (may be null) then gets a note that names it.
Result<std::string> StripWeights(const LoadedModel& model, const ParameterPlan& plan,
                                 Diagnostics* diagnostics = nullptr);

struct ExportOptions {
  // Above this many bytes of weights they go to a file beside the model, "<name>.data".
  int64_t external_above = int64_t{1} << 30;
  FileSystem* file_system = nullptr;  // null: the real one
};

// `values`: one tensor per persistent tensor of the model, by name; converted to the element type
// of the file. Other tools run the result as inference: BatchNormalization and Dropout are written
// in evaluation mode, un-merged Identity nodes become initializers.
Status ExportTrained(std::string_view stripped_model,
                     const std::map<std::string, ir::HostTensor>& values, const std::string& path,
                     const ExportOptions& options = {});

}  // namespace hyper::onnx_frontend
