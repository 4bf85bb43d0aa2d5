// docs/onnx-support.md: which operators are read in which versions, which pass gradients, and what
// became of ONNX's node tests on the cpu target.
// Thread safety: pure functions of files.
#pragma once

#include <string>

namespace hyper::onnx_backend {

// The whole document, from the importer records, the committed lists (lists.h) and the cases below
// `node_tests`. Ends in a newline.
std::string SupportMarkdown(const std::string& node_tests);

}  // namespace hyper::onnx_backend
