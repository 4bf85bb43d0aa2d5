// Which parameter or buffer of a PyTorch program each operand of an exported file holds. The
// exporter stores tensors of equal value once, stores folded copies instead of parameters, puts
// literals beside them and drops biases that are zero; the calls that it records tell them apart.
// Thread safety: pure functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "frontend/onnx/load.h"
#include "frontend/onnx/torch_metadata.h"

namespace hyper::onnx_frontend {

enum class OriginKind {
  kUnknown,   // nothing is recorded
  kInput,     // a parameter or buffer as it is
  kLayout,    // one, transposed or reshaped
  kComputed,  // a function of some
  kLiteral,   // numbers of the program
};

struct TorchOrigin {
  OriginKind kind = OriginKind::kUnknown;
  std::vector<int> inputs;  // of the record; one for kInput and kLayout
};

// How the file's tensor differs from the parameter, as far as the call tells.
enum class TorchForm { kSame, kTransposed, kVector, kUnknown };

struct TorchUse {
  static constexpr int kLiteral = -1;  // a number of the formula, merged with a parameter
  static constexpr int kOwnCopy = -2;  // a parameter that has no name of its own
  const onnx::NodeProto* node = nullptr;
  int slot = 0;
  std::string tensor;
  int input = 0;  // of the record, or one of the above
  TorchForm form = TorchForm::kSame;
};

// A bias that was zero and is no operand any more: operand `slot` of `node` was `input`.
struct RemovedBias {
  const onnx::NodeProto* node = nullptr;
  int slot = 0;
  int input = 0;
};

struct TorchOrigins {
  TorchRecord record;
  std::map<std::string, TorchOrigin> tensors;  // every float tensor of the file
  std::vector<TorchUse> uses;                  // in node order; only what the record tells
  std::vector<RemovedBias> removed_biases;
  std::vector<std::string> fused;  // tensors that a BatchNormalization was folded into
  std::vector<std::string> lost;   // parameters that calls name and no operand holds
  // Tensors read under another name than their own while parameters are missing: perhaps merged.
  std::vector<std::string> unsure;
};

std::optional<TorchOrigins> FindTorchOrigins(const LoadedModel& model);

}  // namespace hyper::onnx_frontend
