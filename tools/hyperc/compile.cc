// hyperc compile and hyperc check.
#include <chrono>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>

#include "base/strings.h"
#include "frontend/strategy/strategy.h"
#include "tools/driver/compile_job.h"
#include "tools/hyperc/commands.h"

namespace hyper::tools {
namespace {

struct CompileCommandOptions {
  std::string model;
  std::string strategy;
  std::string out;
  std::string march = "native";
  std::string kernels = "auto";
  bool explain = false;
  int jobs = 2;
};

Result<strategy::Strategy> ReadStrategy(const std::string& path) {
  constexpr int64_t kLimit = 1 << 20;
  HYPER_ASSIGN_OR_RETURN(const std::string text, RealFileSystem()->ReadAll(path, kLimit));
  return strategy::ParseStrategy(text, path, nullptr);
}

std::string DefaultCacheDir() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME")) return JoinPath(cache, "hyper/kernels");
  if (const char* home = std::getenv("HOME")) return JoinPath(home, ".cache/hyper/kernels");
  return {};
}

void Explain(const CompiledJob& job) {
  for (const ir::PersistentTensor& tensor : job.tensors) {
    WriteErr(fmt::format("{}: {} {}\n", ir::ArgumentKindName(tensor.kind), tensor.name,
                         tensor.type.ToString()));
  }
  for (const std::string& reason : job.unfused) WriteErr("not fused: " + reason + "\n");
}

Status Compile(const CompileCommandOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  HYPER_ASSIGN_OR_RETURN(const strategy::Strategy strategy, ReadStrategy(options.strategy));
  CompileJobOptions job_options;
  job_options.kernels.march = options.march;
  job_options.kernels.jobs = options.jobs;
  job_options.kernels.cache_dir = DefaultCacheDir();
  if (const char* compiler = std::getenv("CXX")) job_options.kernels.compiler = compiler;
  job_options.reference_kernels = options.kernels == "reference";
  Diagnostics notes;
  HYPER_ASSIGN_OR_RETURN(CompiledJob job, CompileJob(options.model, strategy, job_options, &notes));
  WriteNotes(notes);
  if (options.explain) Explain(job);
  const int64_t arena = job.content.program.arena_bytes();
  HYPER_RETURN_IF_ERROR(
      codegen::WriteBundle(RealFileSystem(), options.out, std::move(job.content)));
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  WriteErr(fmt::format("wrote {} in {:.1f} s; one rank needs {}\n", options.out, seconds,
                       FormatBytes(arena)));
  return Status::Ok();
}

Status Check(const std::string& strategy_path, const std::string& model_path) {
  HYPER_ASSIGN_OR_RETURN(const strategy::Strategy strategy, ReadStrategy(strategy_path));
  if (!model_path.empty()) {
    Diagnostics notes;
    HYPER_ASSIGN_OR_RETURN(const auto model, onnx_frontend::LoadModel(model_path, {}, &notes));
    HYPER_RETURN_IF_ERROR(BuildModule(*model, strategy, &notes, nullptr).status());
    WriteNotes(notes);
  }
  WriteErr(strategy_path + ": no errors\n");
  return Status::Ok();
}

}  // namespace

Command AddCompile(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("compile", "compile a model and a strategy into a bundle");
  auto options = std::make_shared<CompileCommandOptions>();
  sub->add_option("MODEL", options->model, "the .onnx file")->required();
  sub->add_option("-s,--strategy", options->strategy, "the .yaml file")->required();
  sub->add_option("-o,--output", options->out, "the bundle to write (a folder)")->required();
  sub->add_option("--march", options->march,
                  "processor that kernels are built for, as GCC names it (default: this one)");
  sub->add_option("--kernels", options->kernels,
                  "auto, or reference: every op by plain loops (slow; to compare with)")
      ->check(CLI::IsMember({"auto", "reference"}));
  sub->add_flag("--explain", options->explain,
                "say what is trained and what was not fused, and why");
  sub->add_option("--jobs", options->jobs, "compilers run at once")->check(CLI::PositiveNumber);
  return [options] { return Compile(*options); };
}

Command AddCheck(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("check", "check a strategy, and how it fits a model");
  auto strategy = std::make_shared<std::string>();
  auto model = std::make_shared<std::string>();
  sub->add_option("STRATEGY", *strategy, "the .yaml file")->required();
  sub->add_option("--model", *model, "the .onnx file it is meant for");
  return [strategy, model] { return Check(*strategy, *model); };
}

}  // namespace hyper::tools
