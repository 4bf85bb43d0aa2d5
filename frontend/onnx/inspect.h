// What a model holds and what training it would mean, for `hyperc inspect`.
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace hyper::onnx_frontend {

struct ReportTensor {
  std::string name;
  std::string type;   // "float[batch,3,32,32]"
  bool bind = false;  // an input whose value decides shapes or branches: model.bind
};

struct ReportProblem {
  std::string node;
  std::string op;
  std::string kind;  // "import": cannot be run; "gradient": lets no gradient through
  std::string reason;
};

struct ModelReport {
  std::string path;
  int64_t ir_version = 0;
  std::vector<std::pair<std::string, int64_t>>
      opsets;  // domain ("ai.onnx" for the default), version
  std::string producer;
  std::vector<ReportTensor> inputs;
  std::vector<ReportTensor> outputs;
  std::vector<SymbolicDim> dims;
  std::vector<ParameterDecision> tensors;        // float tensors, constants included
  std::vector<std::pair<std::string, int>> ops;  // histogram by op, most frequent first
  std::vector<ReportProblem> problems;
  std::vector<std::string> messages;  // other errors of an import
  std::vector<std::string> notes;     // doubts about what is a parameter, and what was put right
  int64_t trained_elements = 0;
  int64_t frozen_elements = 0;
};

// `options` as for Import; dims may be left unbound, then only what does not need shapes is
// checked. Without a loss every output counts as one when "does not reach the loss" is decided.
// Dims that no input has are ignored.
ModelReport BuildReport(const LoadedModel& model, const ImportOptions& options);

// Tables of at most 100 columns; only names longer than that stand out.
std::string ReportText(const ModelReport& report);
// Stable keys: path, ir_version, opsets, producer, inputs, outputs, dims, parameters, ops,
// problems, messages, notes, trained_elements, frozen_elements. docs/formats.md describes them.
std::string ReportJson(const ModelReport& report);

}  // namespace hyper::onnx_frontend
