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
#include "codegen/report.h"
#include "frontend/onnx/import.h"
#include "frontend/strategy/strategy.h"
#include "ir/graph.h"
#include "offload/placement.h"

namespace hyper::tools {

struct CompileJobOptions {
  codegen::CompileOptions kernels;
  bool reference_kernels = false;  // one reference call per op (the oracle)
  int64_t guard_bytes = 0;         // test mode, see offload::PlacementOptions
  // Threads per rank that memory is planned for, at most; 0: as many as this machine runs at once.
  int threads = 0;
  // BatchNormalization and Dropout exactly as the file marks them (conformance tests).
  bool literal_modes = false;
};

struct CompiledJob {
  codegen::BundleContent content;
  std::string lowered_text;            // the placed program by lower/print.h, for tests
  std::vector<std::string> unfused;    // stated reasons, for --explain
  std::vector<std::string> unreached;  // parameters that do not influence the loss
  std::vector<ir::PersistentTensor> tensors;
  std::map<std::string, std::string> reasons;  // tensor -> why it is trained or not
};

// Strategy -> what the importer needs to know. Files of model.bind that cannot be read are errors
// in `diagnostics`; their inputs stay unbound.
onnx_frontend::ImportOptions ImportOptionsOf(const strategy::Strategy& strategy,
                                             Diagnostics* diagnostics);

// The module after autodiff, precision and simplification: what `hyperc show --ir` prints.
Result<ir::Module> BuildModule(const onnx_frontend::LoadedModel& model,
                               const strategy::Strategy& strategy, Diagnostics* diagnostics,
                               std::vector<std::string>* unreached);

// A job whose kernels are not compiled yet: many of them can share one run of the host compiler
// (codegen/kernel_collection.h).
struct PlannedJob {
  CompiledJob job;  // without program and kernels
  offload::PlacedModule placed;
  std::vector<program::LossTerm> losses;
  std::map<std::string, int64_t> index_inputs;  // input -> smallest extent that it indexes
  codegen::PlanNotes notes;
  codegen::MarchInfo march;
  int threads = 0;
  bool training = false;
  int min_replicas = 1;
  bool reduce_at_end = false;
};

// All phases before the kernels. `march`: what options.kernels.march resolves to.
Result<PlannedJob> PlanJob(const onnx_frontend::LoadedModel& model,
                           const strategy::Strategy& strategy, const CompileJobOptions& options,
                           const codegen::MarchInfo& march, Diagnostics* diagnostics);
// `symbols`: the kernels' names as KernelCollection::Add gave them; the object of `kernels` may
// hold more than those.
Result<CompiledJob> FinishJob(PlannedJob planned,
                              const std::vector<std::vector<std::string>>& symbols,
                              codegen::CompiledKernels kernels, Diagnostics* diagnostics);

// Everything. Warnings and notes go to `diagnostics`; all errors of a phase come back together.
Result<CompiledJob> CompileJob(const std::string& model_path, const strategy::Strategy& strategy,
                               const CompileJobOptions& options, Diagnostics* diagnostics);

}  // namespace hyper::tools
