// hyperc inspect: what a model holds and what training it would mean.
#include <charconv>
#include <memory>

#include <fmt/format.h>

#include "frontend/onnx/inspect.h"
#include "tools/hyperc/commands.h"

namespace hyper::tools {
namespace {

struct InspectOptions {
  std::string model;
  std::vector<std::string> dims;
  std::string format = "text";
};

Status Inspect(const InspectOptions& options) {
  Diagnostics notes;
  HYPER_ASSIGN_OR_RETURN(const auto model, onnx_frontend::LoadModel(options.model, {}, &notes));
  onnx_frontend::ImportOptions import;
  import.training = true;
  for (const std::string& dim : options.dims) {
    const size_t equals = dim.find('=');
    int64_t extent = 0;
    const char* end = dim.data() + dim.size();
    const bool has_both = equals != std::string::npos && equals > 0 && equals + 1 < dim.size();
    if (!has_both || std::from_chars(dim.data() + equals + 1, end, extent).ptr != end ||
        extent < 1) {
      return InvalidArgument(fmt::format("--dim '{}': write NAME=EXTENT, such as batch=16", dim));
    }
    import.dims[dim.substr(0, equals)] = extent;
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
      "inspect", "show inputs, outputs, parameters, symbolic dims and operators of a model");
  auto options = std::make_shared<InspectOptions>();
  sub->add_option("MODEL", options->model, "the .onnx file")->required();
  sub->add_option("--dim", options->dims, "NAME=EXTENT: bind a symbolic dim; may be repeated")
      ->take_all()
      ->expected(1);
  sub->add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  return [options] { return Inspect(*options); };
}

}  // namespace hyper::tools
