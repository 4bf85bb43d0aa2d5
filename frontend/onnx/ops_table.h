// The ONNX operators that models may use, from the importer records and ONNX's own registry:
// docs/onnx-operators.md and `hyperc ops --onnx`.
// Thread safety: pure functions.
#pragma once

#include <string>

namespace hyper::onnx_frontend {

// The whole of docs/onnx-operators.md. Ends in a newline.
std::string OnnxOpsMarkdown();
// A table of at most 100 columns.
std::string OnnxOpsText();
// {"newest_opset", "operators": [{"domain", "op", "opsets": [first, last], "since_versions":
// [oldest, newest], "by": "importer" | "function", "gradient": bool or null, "reason",
// "doc"}]}.
std::string OnnxOpsJson();

}  // namespace hyper::onnx_frontend
