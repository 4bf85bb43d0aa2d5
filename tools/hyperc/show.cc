// hyperc show: what is in a bundle.
#include <memory>

#include <nlohmann/json.hpp>

#include "codegen/bundle.h"
#include "codegen/report.h"
#include "tools/hyperc/commands.h"

namespace hyper::tools {
namespace {

struct ShowOptions {
  std::string bundle;
  bool memory = false;
  bool kernels = false;
  bool ir = false;
  std::string format = "text";
  std::string svg;
  std::string subprogram = "step_first";
};

Status Show(const ShowOptions& options) {
  HYPER_ASSIGN_OR_RETURN(const auto bundle,
                         codegen::BundleReader::Open(RealFileSystem(), options.bundle));
  const program::Program& program = bundle->program();
  if (!options.svg.empty()) {
    HYPER_ASSIGN_OR_RETURN(const std::string svg,
                           codegen::MemoryChartSvg(program, options.subprogram));
    HYPER_RETURN_IF_ERROR(WriteFileAtomic(RealFileSystem(), options.svg, svg));
    WriteErr("wrote " + options.svg + "\n");
    return Status::Ok();
  }
  if (options.ir) {
    HYPER_ASSIGN_OR_RETURN(const std::string text, bundle->ReadText("module.hir"));
    WriteOut(text);
    return Status::Ok();
  }
  // Without a choice both tables.
  const bool both = !options.memory && !options.kernels;
  if (options.format == "json" && both) {
    HYPER_ASSIGN_OR_RETURN(const std::string plan, bundle->ReadText("plan.json"));
    WriteOut(plan);
    return Status::Ok();
  }
  if (options.format == "json") {
    nlohmann::json out = nlohmann::json::object();
    if (options.memory) out.update(nlohmann::json::parse(codegen::MemoryJson(program)));
    if (options.kernels) out.update(nlohmann::json::parse(codegen::KernelsJson(program)));
    WriteOut(out.dump(2) + "\n");
    return Status::Ok();
  }
  if (both || options.memory) WriteOut(codegen::MemoryTable(program));
  if (both) WriteOut("\n");
  if (both || options.kernels) WriteOut(codegen::KernelTable(program));
  return Status::Ok();
}

}  // namespace

Command AddShow(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("show", "show the memory plan, the kernels or the IR of a bundle");
  auto options = std::make_shared<ShowOptions>();
  sub->add_option("BUNDLE", options->bundle, "folder written by hyperc compile")->required();
  sub->add_flag("--memory", options->memory, "bytes by storage class and over time");
  sub->add_flag("--kernels", options->kernels, "each kernel with the bytes it moves");
  sub->add_flag("--ir", options->ir, "the program before lowering, as text");
  sub->add_option("--format", options->format, "text or json")
      ->check(CLI::IsMember({"text", "json"}));
  // The IR has its own text form.
  sub->final_callback([options] {
    if (options->ir && options->format == "json") {
      throw CLI::ValidationError("--ir", "is text; --format json has --memory and --kernels");
    }
  });
  sub->add_option("--svg", options->svg, "write a chart of live memory over a step to this file");
  sub->add_option("--subprogram", options->subprogram, "subprogram of the chart");
  return [options] { return Show(*options); };
}

}  // namespace hyper::tools
