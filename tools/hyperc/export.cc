// hyperc export: trained values from a checkpoint into the original model.
#include <memory>

#include "codegen/bundle.h"
#include "frontend/onnx/export.h"
#include "runtime/checkpoint.h"
#include "tools/hyperc/commands.h"

namespace hyper::tools {
namespace {

struct ExportOptions {
  std::string bundle;
  std::string checkpoint;
  std::string out;
};

Status Export(const ExportOptions& options) {
  HYPER_ASSIGN_OR_RETURN(const auto bundle,
                         codegen::BundleReader::Open(RealFileSystem(), options.bundle));
  HYPER_ASSIGN_OR_RETURN(const std::string model, bundle->ReadText("model.onnx"));
  HYPER_ASSIGN_OR_RETURN(const runtime::NamedTensors tensors,
                         runtime::LoadTensors(RealFileSystem(), options.checkpoint));
  HYPER_RETURN_IF_ERROR(onnx_frontend::ExportTrained(model, tensors, options.out));
  WriteErr("wrote " + options.out + "\n");
  return Status::Ok();
}

}  // namespace

Command AddExport(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("export", "write a checkpoint's values as an ONNX model");
  auto options = std::make_shared<ExportOptions>();
  sub->add_option("BUNDLE", options->bundle, "the bundle that was trained")->required();
  sub->add_option("--checkpoint", options->checkpoint,
                  "a checkpoint, or a folder of them (then the newest)")
      ->required();
  sub->add_option("-o,--output", options->out, "the .onnx file to write")->required();
  return [options] { return Export(*options); };
}

}  // namespace hyper::tools
