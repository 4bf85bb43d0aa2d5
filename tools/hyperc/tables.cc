// hyperc ops and hyperc schema: what the registry and the settings table say.
#include <memory>

#include "frontend/onnx/ops_table.h"
#include "frontend/strategy/schema.h"
#include "ir/ops_table.h"
#include "tools/hyperc/commands.h"

namespace hyper::tools {

Command AddOps(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("ops", "list the core operators, their gradients and kernels");
  auto format = std::make_shared<std::string>("text");
  auto onnx = std::make_shared<bool>(false);
  sub->add_option("--format", *format, "text or json")->check(CLI::IsMember({"text", "json"}));
  sub->add_flag("--onnx", *onnx, "list the ONNX operators that models may use");
  return [format, onnx] {
    const bool json = *format == "json";
    if (*onnx) {
      WriteOut(json ? onnx_frontend::OnnxOpsJson() : onnx_frontend::OnnxOpsText());
    } else {
      WriteOut(json ? ir::OpsJson() : ir::OpsText());
    }
    return Status::Ok();
  };
}

Command AddSchema(CLI::App& app) {
  app.add_subcommand("schema", "print the JSON Schema of strategy files (for editors)");
  return [] {
    WriteOut(strategy::StrategySchemaJson());
    return Status::Ok();
  };
}

}  // namespace hyper::tools
