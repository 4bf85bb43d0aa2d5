#include "tools/driver/load_strategy.h"

#include <array>
#include <memory>
#include <string_view>
#include <utility>

#include "frontend/onnx/import.h"
#include "frontend/onnx/load.h"
#include "tools/driver/compile_job.h"
#include "tools/driver/data_names.h"

namespace hyper::tools {
namespace {

constexpr int64_t kStrategyLimit = 1 << 20;  // bytes

// What the module is built from is known: then the model is held against all of it.
bool DecidesModule(const strategy::StrategyDraft& draft) {
  static constexpr std::array<std::string_view, 6> kSections = {
      "model",           "train.loss",  "train.precision",
      "train.batchnorm", "data.inputs", "data.eval.inputs"};
  for (const std::string_view section : kSections) {
    if (!draft.IsCertainBelow(section)) return false;
  }
  return true;
}

// Names alone, of what was accepted: extents and kinds may be unknown.
void CheckModelNames(const onnx_frontend::LoadedModel& model, const strategy::StrategyDraft& draft,
                     Diagnostics* diagnostics) {
  const strategy::Strategy& strategy = draft.strategy;
  onnx_frontend::ImportOptions options = ImportOptionsOf(strategy, diagnostics);
  if (!draft.IsCertain("model.dims")) {
    for (const auto& dim : onnx_frontend::SymbolicDims(model)) options.dims.emplace(dim.name, 1);
  }
  options.losses.clear();
  if (strategy.train) {
    for (const strategy::LossTerm& term : strategy.train->loss) {
      const std::array<std::pair<const char*, const std::string*>, 3> named = {
          {{".logits", &term.logits},
           {".prediction", &term.prediction},
           {".output", &term.output}}};
      for (const auto& [key, name] : named) {
        if (name->empty()) continue;
        onnx_frontend::LossSpec spec;
        spec.prediction = *name;
        spec.prediction_location = strategy.LocationOf(term.path + key);
        options.losses.push_back(std::move(spec));
      }
    }
  }
  options.training = !options.losses.empty();
  onnx_frontend::CheckImportNames(model, options, diagnostics);
  CheckDataNames(model, strategy, diagnostics, draft.IsCertainBelow("train.loss"),
                 draft.IsCertain("data.inputs") && draft.IsCertain("data.eval.inputs"));
}

void CheckAgainstModel(const std::string& model_path, const strategy::StrategyDraft& draft,
                       Diagnostics* diagnostics) {
  const int errors = diagnostics->error_count();
  auto model = onnx_frontend::LoadModel(model_path, {}, diagnostics);
  Status status = model.status();
  if (status.ok() && draft.has_keys) {
    if (DecidesModule(draft)) {
      status = BuildModule(**model, draft.strategy, diagnostics, nullptr).status();
    } else {
      CheckModelNames(**model, draft, diagnostics);
    }
  }
  if (!status.ok() && diagnostics->error_count() == errors) {
    diagnostics->Error({model_path}, status.message());
  }
}

}  // namespace

Result<strategy::Strategy> LoadStrategy(FileSystem* fs, const std::string& path,
                                        const std::string& model_path, Diagnostics* diagnostics) {
  HYPER_ASSIGN_OR_RETURN(const std::string text, fs->ReadAll(path, kStrategyLimit));
  strategy::StrategyDraft draft = strategy::DraftStrategy(text, path, diagnostics);
  WarnOfMissingData(draft.strategy, fs, diagnostics);
  if (!diagnostics->has_errors()) return std::move(draft.strategy);
  if (!model_path.empty()) CheckAgainstModel(model_path, draft, diagnostics);
  return diagnostics->ToStatus(draft.strategy.source);
}

}  // namespace hyper::tools
