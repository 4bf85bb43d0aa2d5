// Which tensors of a file a gradient of the losses can reach, and what keeps it from the others
// (part of import.h). Follows nodes only; shapes and values are not known.
// Thread safety: values; const access from several threads is safe.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "frontend/onnx/load.h"
#include "frontend/onnx/parameter_uses.h"

namespace hyper::onnx_frontend {

class GradientFlow {
 public:
  GradientFlow() = default;  // of no losses: reaches nothing
  GradientFlow(const LoadedModel& model, const std::set<std::string>& losses);

  // True when one of the uses takes part in computing a loss.
  bool ReachesLoss(const std::vector<Use>& uses) const;
  // For a tensor that reaches a loss: "'/Round' (Round): why" when no use lets a gradient through,
  // else empty.
  std::string CutBy(const std::vector<Use>& uses) const;

 private:
  std::map<std::string, bool> in_loss_;
  std::set<std::string> flows_;                  // tensors that a gradient reaches
  std::map<std::string, std::string> blockers_;  // others that reach the loss: what is in between
};

}  // namespace hyper::onnx_frontend
