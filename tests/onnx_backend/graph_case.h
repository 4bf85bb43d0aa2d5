// Cases written by hand in ONNX's text form, beside the node tests.
// Thread safety: pure functions.
#pragma once

#include <string>

#include "tests/onnx_backend/cases.h"

namespace hyper::onnx_backend {

struct GraphCase {
  std::string name;
  int opset;
  std::string graph;  // the last node is the one that counts; all inputs are float
};

// Inputs are drawn from (-1.2, 1.2), the same ones for the same name. No outputs are recorded.
Result<NodeCase> CaseOf(const GraphCase& graph_case);

}  // namespace hyper::onnx_backend
