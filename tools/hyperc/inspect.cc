// hyperc inspect: what a model holds and what training it would mean.
#include <algorithm>
#include <charconv>
#include <map>
#include <memory>
#include <string>
#include <system_error>

#include <fmt/format.h>

#include "base/strings.h"
#include "frontend/onnx/inspect.h"
#include "tools/driver/compile_job.h"
#include "tools/driver/load_strategy.h"
#include "tools/hyperc/commands.h"

namespace hyper::tools {
namespace {

struct InspectOptions {
  std::string model;
  std::string strategy;
  std::vector<std::string> dims;
  std::string format = "text";
};

// Dims that the model does not have; others may stay unbound.
Status CheckDims(const onnx_frontend::LoadedModel& model,
                 const onnx_frontend::ImportOptions& options) {
  std::vector<std::string> known;
  for (const onnx_frontend::SymbolicDim& dim : onnx_frontend::SymbolicDims(model)) {
    known.push_back(dim.name);
  }
  Diagnostics diagnostics;
  for (const auto& [name, extent] : options.dims) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    diagnostics.Error({model.path},
                      fmt::format("--dim {}={}: no input has a symbolic dim '{}'; the model has {}",
                                  name, extent, name, known.empty() ? "none" : Join(known, ", ")),
                      DidYouMean(name, known));
  }
  return diagnostics.ToStatus();
}

// NAME=EXTENT; false when it is not of that form.
bool ParseDim(const std::string& dim, std::map<std::string, int64_t>* dims) {
  const size_t equals = dim.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == dim.size()) return false;
  int64_t extent = 0;
  const char* end = dim.data() + dim.size();
  const auto parsed = std::from_chars(dim.data() + equals + 1, end, extent);
  if (parsed.ec != std::errc() || parsed.ptr != end || extent < 1) return false;
  (*dims)[dim.substr(0, equals)] = extent;
  return true;
}

Status Inspect(const InspectOptions& options) {
  Diagnostics notes;
  HYPER_ASSIGN_OR_RETURN(const auto model, onnx_frontend::LoadModel(options.model, {}, &notes));
  onnx_frontend::ImportOptions import;
  import.training = true;
  strategy::Strategy strategy;
  if (!options.strategy.empty()) {
    HYPER_ASSIGN_OR_RETURN(strategy,
                           LoadStrategy(RealFileSystem(), options.strategy, options.model, &notes));
    import = ImportOptionsOf(strategy, &notes);
  }
  for (const std::string& dim : options.dims) ParseDim(dim, &import.dims);
  if (options.strategy.empty()) {
    HYPER_RETURN_IF_ERROR(CheckDims(*model, import));
  } else {
    onnx_frontend::CheckImportNames(*model, import, &notes);
    if (notes.has_errors()) return notes.ToStatus(strategy.source);
  }
  WriteNotes(notes);
  const onnx_frontend::ModelReport report = onnx_frontend::BuildReport(*model, import);
  WriteOut(options.format == "json" ? onnx_frontend::ReportJson(report)
                                    : onnx_frontend::ReportText(report));
  return Status::Ok();
}

}  // namespace

Command AddInspect(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "inspect", "show inputs, outputs, parameters, dims and operators of a model");
  auto options = std::make_shared<InspectOptions>();
  sub->add_option("MODEL", options->model, "the .onnx file")->required();
  sub->add_option("-s,--strategy", options->strategy,
                  "a .yaml file whose model.parameters, model.tie and losses are applied");
  sub->add_option("--dim", options->dims, "NAME=EXTENT: bind a symbolic dim; may be repeated")
      ->take_all()
      ->expected(1)
      ->check(CLI::Validator(
          [](std::string& dim) -> std::string {
            std::map<std::string, int64_t> parsed;
            if (ParseDim(dim, &parsed)) return {};
            return fmt::format("--dim '{}': write NAME=EXTENT, such as batch=16", dim);
          },
          ""));
  sub->add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  return [options] { return Inspect(*options); };
}

}  // namespace hyper::tools
