// A model file, or a folder (target.h) of "model.onnx" and its external data: loading, the report
// of hyperc inspect, import, and everything that hyperc compile does before it calls the host
// compiler.
#include "base/diagnostics.h"
#include "frontend/onnx/inspect.h"
#include "frontend/onnx/load.h"
#include "frontend/strategy/strategy.h"
#include "ir/text.h"
#include "tests/fuzz/target.h"
#include "tools/driver/compile_job.h"

namespace {

// What stands in a strategy for this model: every symbolic dim is 2, the first output is the loss
// when it trains.
std::string StrategyFor(const hyper::onnx_frontend::LoadedModel& model, bool train) {
  std::string text = "version: 1\nmodel:\n  dims: {";
  const auto quoted = [](const std::string& name) {
    std::string q = "\"";
    for (const char c : name) {
      if (c == '"' || c == '\\') q += '\\';
      q += c;
    }
    return q + "\"";
  };
  for (const auto& dim : hyper::onnx_frontend::SymbolicDims(model)) {
    text += quoted(dim.name) + ": 2, ";
  }
  text += "}\n";
  const auto& outputs = model.graph().output();
  if (train && !outputs.empty()) {
    text += "train:\n  loss: {output: " + quoted(outputs[0].name()) +
            "}\n  optimizer: {kind: sgd, lr: 0.1}\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hyper;
  const std::string folder = fuzz::FreshFolder();
  const std::string path = folder + "/model.onnx";
  const std::string text(reinterpret_cast<const char*>(data), size);
  auto files = fuzz::Unpack(text);
  if (files.empty()) files["model.onnx"] = text;
  fuzz::WriteFiles(folder, files);
  Diagnostics diagnostics;
  const auto model = onnx_frontend::LoadModel(path, {}, &diagnostics);
  if (!model.ok()) {
    fuzz::Require(diagnostics.error_count() > 0, "a refused file without a diagnostic");
    fuzz::Require(model.status().code() != StatusCode::kInternal,
                  "an internal error while loading");
    return 0;
  }
  (void)onnx_frontend::ReportText(onnx_frontend::BuildReport(**model, {}));
  // Real models of this size plan in milliseconds; large extents are no finding, only slow.
  for (const bool train : {false, true}) {
    Diagnostics said;
    const auto strategy = strategy::ParseStrategy(StrategyFor(**model, train), "s.yaml", &said);
    if (!strategy.ok()) continue;
    tools::CompileJobOptions options;
    options.threads = 1;
    const auto planned = tools::PlanJob(**model, *strategy, options, {"x86-64", {}}, &said);
    if (!planned.ok()) {
      fuzz::Require(planned.status().code() != StatusCode::kInternal,
                    planned.status().ToString().c_str());
    }
  }
  return 0;
}
