#include "tools/hyperrun/options.h"

#include <CLI/CLI.hpp>

namespace hyper::tools {

std::optional<int> ParseRunOptions(int argc, char** argv, RunOptions* options) {
  CLI::App app{"Executes a bundle that hyperc made. Start it with mpirun for several ranks."};
  app.name("hyperrun");
  app.set_version_flag("--version", "hyperrun 0.1.0");
  app.add_option("BUNDLE", options->bundle, "folder written by hyperc compile")->required();
  app.add_option("--steps", options->steps, "stop after this many optimizer steps")
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--eval", options->eval, "evaluate on data.eval only, no training");
  app.add_option("--checkpoint", options->checkpoint,
                 "start from this checkpoint (a folder of them: the newest)");
  app.add_option("--export", options->export_path, "write the trained model to this .onnx file");
  app.add_option(
         "--set", options->overrides,
         "KEY=VALUE: change a launch key of the strategy (run.*, data.*, train.optimizer.*, "
         "train.schedule.*, ...); may be repeated")
      ->take_all()
      ->expected(1);
  app.add_flag("--dry-run", options->dry_run, "check everything up to the first step");
  app.add_option("--trace", options->trace, "write a Chrome trace of one step to this file");
  app.add_option("--kernels", options->kernels,
                 "auto, or reference: library calls by plain loops (slow)")
      ->check(CLI::IsMember({"auto", "reference"}));
  app.add_option("--overlap", options->overlap,
                 "reduce gradients during backward: true or false (default: the strategy's)");
  app.add_option("--threads", options->threads,
                 "threads of this rank (default: its affinity mask, at most OMP_NUM_THREADS)")
      ->check(CLI::PositiveNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  return std::nullopt;
}

}  // namespace hyper::tools
