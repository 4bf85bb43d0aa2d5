// The compiler's passes in order: model file + strategy -> content of a bundle. Used by hyperc and
// by the end-to-end tests.
// Thread safety: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/diagnostics.h"
#include "base/status.h"
#include "codegen/bundle.h"
#include "codegen/compile.h"
#include "frontend/onnx/import.h"
#include "frontend/strategy/strategy.h"
#include "ir/graph.h"

namespace hyper::tools {

struct CompileJobOptions {
  codegen::CompileOptions kernels;
  bool reference_kernels = false;  // one reference call per op (the oracle)
  int64_t guard_bytes = 0;         // test mode, see offload::PlacementOptions
  // Threads per rank that memory is planned for, at most; 0: as many as this machine runs at once.
  int threads = 0;
};

struct CompiledJob {
  codegen::BundleContent content;
  std::string lowered_text;            // the placed program by lower/print.h, for tests
  std::vector<std::string> unfused;    // stated reasons, for --explain
  std::vector<std::string> unreached;  // parameters that do not influence the loss
  std::vector<ir::PersistentTensor> tensors;
  std::map<std::string, std::string> reasons;  // tensor -> why it is trained or not
};

// Strategy -> what the importer needs to know.
onnx_frontend::ImportOptions ImportOptionsOf(const strategy::Strategy& strategy);

// The module after autodiff, precision and simplification: what `hyperc show --ir` prints.
Result<ir::Module> BuildModule(const onnx_frontend::LoadedModel& model,
                               const strategy::Strategy& strategy, Diagnostics* diagnostics,
                               std::vector<std::string>* unreached);

// Everything. Warnings and notes go to `diagnostics`; all errors of a phase come back together.
Result<CompiledJob> CompileJob(const std::string& model_path, const strategy::Strategy& strategy,
                               const CompileJobOptions& options, Diagnostics* diagnostics);

}  // namespace hyper::tools
