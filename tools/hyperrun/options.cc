#include "tools/hyperrun/options.h"

#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "runtime/team.h"
#include "tools/whole_number.h"

namespace hyper::tools {
namespace {

// As of run.steps: exact in JSON numbers of every reader.
constexpr int64_t kMaxSteps = int64_t{1} << 53;

// What would change nothing is not what the user meant. CLI11's own exclusion prints its lists in
// the order of pointers.
void RefuseWithoutEffect(const CLI::App& app) {
  const auto given = [&](const char* option) { return app.count(option) > 0; };
  for (const char* mode : {"--eval", "--outputs"}) {
    if (!given(mode)) continue;
    for (const char* other : {"--outputs", "--steps", "--overwrite", "--trace", "--overlap"}) {
      if (std::string_view(other) == mode || !given(other)) continue;
      throw CLI::ValidationError(
          other, fmt::format("has no effect with {}, which does not train: leave one out", mode));
    }
  }
}

}  // namespace

std::optional<int> ParseRunOptions(int argc, char** argv, RunOptions* options) {
  CLI::App app{"Executes a bundle that hyperc made. Start it with mpirun for several ranks."};
  app.name("hyperrun");
  app.set_version_flag("--version", "hyperrun 0.1.0");
  app.add_option("BUNDLE", options->bundle, "folder written by hyperc compile")->required();
  app.add_option("--steps", options->steps,
                 "last optimizer step, counted from the first step of the\n"
                 "training, also with --checkpoint (default: run.steps)")
      ->type_name("N")
      ->check(WholeNumber(0, kMaxSteps));
  app.add_flag("--eval", options->eval,
               "evaluate on data.eval only, no training; adds a line to\n"
               "eval.jsonl in run.dir");
  app.add_option("--outputs", options->outputs,
                 "run forward only, no training: write the model's outputs for\n"
                 "data.eval (without it: data) to this folder as .npy files")
      ->type_name("DIR");
  app.add_option("--checkpoint", options->checkpoint,
                 "start from this checkpoint (a folder of them: the newest)");
  app.add_option("--export", options->export_path, "write the trained model to this .onnx file");
  app.add_option("--set", options->overrides,
                 "KEY=VALUE: change a launch key of the strategy (run.*, data.*,\n"
                 "train.optimizer.*, train.schedule.*, ...); may be repeated")
      ->take_all()
      ->expected(1)
      ->check(CLI::Validator(
          [](std::string& text) -> std::string {
            if (const size_t equals = text.find('='); equals != std::string::npos && equals > 0) {
              return {};
            }
            return fmt::format("'{}' is not of the form KEY=VALUE", text);
          },
          ""));
  app.add_flag("--overwrite", options->overwrite,
               "remove the metrics and checkpoints that an earlier job left in\n"
               "run.dir; with a --checkpoint of that job: those after it");
  app.add_flag("--dry-run", options->dry_run, "check everything up to the first step");
  app.add_option("--trace", options->trace, "write a Chrome trace of one step to this file");
  app.add_option("--kernels", options->kernels,
                 "auto, or reference: library calls by plain loops (slow)")
      ->check(CLI::IsMember({"auto", "reference"}));
  std::string overlap;
  app.add_option("--overlap", overlap,
                 "reduce gradients during backward (default: the\n"
                 "strategy's)")
      ->check(CLI::IsMember({"true", "false"}));
  app.add_option("--threads", options->threads,
                 "threads of this rank\n"
                 "(default: its affinity mask, at most OMP_NUM_THREADS)")
      ->type_name("N")
      ->check(WholeNumber(1, runtime::MaxTeamSize()));
  app.footer(
      "--eval and --outputs do not train and exclude one another and the options of a training:\n"
      "--steps, --overwrite, --trace, --overlap.\n\n"
      "SIGTERM or SIGUSR1 to any rank: all finish the step, save the state and end with exit\n"
      "code 75. Other exit codes: 0 done, 1 the input is wrong, 2 usage, 3 internal error,\n"
      "4 resources, 5 communication.");
  try {
    app.parse(argc, argv);
    RefuseWithoutEffect(app);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  if (!overlap.empty()) options->overlap = overlap == "true";
  return std::nullopt;
}

}  // namespace hyper::tools
