// What PyTorch's exporter (torch.onnx.export with dynamo=True) writes into a file beside the graph:
// the parameters and buffers of the exported program, the program's node behind every ONNX node,
// and what folded tensors were computed from. Thread safety: pure functions; a TorchRecord is
// immutable after reading.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/onnx/load.h"

namespace hyper::onnx_frontend {

enum class TorchKind { kParameter, kBuffer, kConstant };

// An input of the exported program that the model holds.
struct TorchInput {
  std::string placeholder;  // "p_layers_0_norm1_weight"
  std::string name;         // "layers.0.norm1.weight"
  TorchKind kind = TorchKind::kParameter;
};

// One call of the exported program, as the exporter prints it.
struct TorchCall {
  std::string op;                      // "linear" of torch.ops.aten.linear.default
  std::vector<std::string> refs;       // names after '%', in order, each once
  std::vector<std::string> arguments;  // top level: "%x", "[8]", "1e-05"
};
// nullopt for a text that is not a call ("%x : [num_users=1] = call_function[target=..](args =
// ..").
std::optional<TorchCall> ParseTorchCall(std::string_view text);

struct TorchRecord {
  std::vector<TorchInput> inputs;                               // in the order of the program
  std::map<std::string, int> by_placeholder;                    // -> index in `inputs`
  std::map<std::string, int> by_name;                           // -> index in `inputs`
  std::map<std::string, std::vector<std::string>> folded_from;  // tensor -> names of values

  const TorchInput* FindPlaceholder(const std::string& placeholder) const;
  const TorchInput* FindName(const std::string& name) const;
};

// nullopt when the file has no such record (another exporter, or a tool that drops metadata).
std::optional<TorchRecord> ReadTorchRecord(const LoadedModel& model);

// The text of the call behind a node, or empty.
const std::string& TorchCallText(const onnx::NodeProto& node);
// Name of the rewrite rule that made the node, or empty.
const std::string& TorchRuleName(const onnx::NodeProto& node);

// Metadata that the exporter of this library writes too, so that its files can be read again.
inline constexpr const char* kFoldedFromKey = "pkg.onnxscript.optimizer.folded_from";

}  // namespace hyper::onnx_frontend
