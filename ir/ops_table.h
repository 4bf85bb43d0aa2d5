// The op registry as a table for people and programs: docs/ops.md and `hyperc ops`.
// Thread safety: pure functions.
#pragma once

#include <string>

namespace hyper::ir {

// The whole of docs/ops.md. Ends in a newline.
std::string OpsMarkdown();
// The ops alone, at most 100 columns wide.
std::string OpsText();
// {"ops": [{"name", "family", "summary", "inputs": [min, max], "outputs", "attributes",
// "gradient", "gradient_reason", "accumulates", "side_effects", "in_place", "saved", "kernels"}]};
// max -1: any number. Ends in a newline.
std::string OpsJson();

}  // namespace hyper::ir
