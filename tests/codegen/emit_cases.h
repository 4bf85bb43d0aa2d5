// Small functions that together cover every core op and the fused combinations of training steps.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace hyper::testing {

struct EmitCase {
  std::string name;
  ir::Function function{"eval"};
  double tolerance = 1;  // scales the dtype's tolerance
};

std::vector<EmitCase> EmitCases(ir::DType dtype);

}  // namespace hyper::testing
