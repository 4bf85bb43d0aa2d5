// The node tests of ONNX as data: a model, the values of its inputs and what its outputs must be.
// Thread safety: pure functions of files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/types.h"
#include "onnx/onnx_pb.h"

namespace hyper::onnx_backend {

struct NodeCase {
  std::string name;  // of its folder
  std::string folder;
  onnx::ModelProto model;
  std::map<std::string, onnx::TensorProto> inputs;  // those that are tensors
  // In the order of the outputs; without a data type where the output is not a tensor.
  std::vector<onnx::TensorProto> outputs;

  // The op that the case tests: of the node that it is about, "" for the default domain.
  std::string op;
  std::string domain;
  int since = 0;          // of the op's schema at the opset of the case
  onnx::NodeProto node;   // that node
  bool expanded = false;  // the op's function body stands in the model instead of its node
};

// Names of all cases in `root`, sorted.
std::vector<std::string> CaseNames(const std::string& root);

// `root`/`name` with its first data set.
Result<NodeCase> ReadCase(const std::string& root, const std::string& name);

// A tensor of a case in the IR's type; kUnimplemented where it has none.
Result<ir::HostTensor> TensorOf(const onnx::TensorProto& tensor);

// "" when `got` is `want` within the tolerances of ONNX's own runner: |got - want| <= absolute +
// 1e-3
// * |want|; else the first element that is not. Integers and truth values must be equal.
std::string Difference(const ir::HostTensor& got, const ir::HostTensor& want,
                       double absolute = 1e-7);

// The absolute tolerance for an output of a case: 1e-7, as ONNX's runner has it. Two cases of DFT
// were recorded with rounding errors of f32 (1.9e-7 beside elements of 54) where the exact value is
// 0; they get 1e-8 of the largest element.
double AbsoluteTolerance(const NodeCase& node_case, const ir::HostTensor& want);

}  // namespace hyper::onnx_backend
