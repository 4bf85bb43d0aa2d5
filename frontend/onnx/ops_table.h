// The ONNX operators that models may use, from the importer records and ONNX's own registry:
// `hyperc ops --onnx`, and docs/onnx-support.md by tests/onnx_backend.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

namespace hyper::onnx_frontend {

// One version of an operator that models may have.
struct OnnxOpVersion {
  std::string domain;
  std::string op;
  int since = 0;
  std::string by;        // "importer", "function" (ONNX's own body); empty: not read
  std::string gradient;  // "yes", "as its body", "none: why"; empty where not read
  std::string doc;       // what it becomes
};

// Of all domains, by domain, name and version; opsets from the oldest that is read.
std::vector<OnnxOpVersion> OnnxOpVersions();
// A table of at most 100 columns.
std::string OnnxOpsText();
// {"newest_opset", "operators": [{"domain", "op", "opsets": [first, last], "since_versions":
// [oldest, newest], "by": "importer" | "function", "gradient": bool or null, "reason",
// "doc"}]}.
std::string OnnxOpsJson();

}  // namespace hyper::onnx_frontend
