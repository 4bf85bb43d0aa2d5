// RunJob: a job from a bundle on disk.
#include "runtime/job.h"

#include <fmt/format.h>

#include "codegen/cpu_features.h"
#include "runtime/team.h"

namespace hyper::runtime {
namespace {

struct OpenedBundle {
  std::unique_ptr<codegen::BundleReader> reader;
  std::unique_ptr<Executor> executor;
  strategy::LaunchConfig launch;
  std::string kept_text;
};

Result<OpenedBundle> OpenBundle(const std::string& path, const JobOptions& options) {
  OpenedBundle opened;
  if (options.threads > MaxTeamSize()) {
    return InvalidArgument(
        fmt::format("{} threads; accepted are 1 to {}", options.threads, MaxTeamSize()));
  }
  HYPER_ASSIGN_OR_RETURN(opened.reader, codegen::BundleReader::Open(options.fs, path));
  // Before any of the bundle's code is loaded.
  HYPER_RETURN_IF_ERROR(codegen::CheckProcessor(opened.reader->manifest()).WithContext(path));
  HYPER_ASSIGN_OR_RETURN(const std::string text, opened.reader->ReadText("launch.json"));
  HYPER_ASSIGN_OR_RETURN(opened.launch, strategy::LaunchConfig::FromJson(text));
  ExecutorOptions executor_options;
  if (!options.keep_text.empty() && options.communicator->rank() == 0) {
    HYPER_ASSIGN_OR_RETURN(opened.kept_text, opened.reader->ReadText(options.keep_text));
  }
  executor_options.threads = options.threads > 0 ? options.threads : DefaultTeamSize();
  executor_options.reference_kernels = options.reference_kernels;
  executor_options.poison = options.poison;
  HYPER_ASSIGN_OR_RETURN(opened.executor, Executor::Create(*opened.reader, executor_options));
  return opened;
}

}  // namespace

Result<JobResult> RunJob(const std::string& bundle_path, const JobOptions& options) {
  Result<OpenedBundle> opened =
      Guard([&]() -> Result<OpenedBundle> { return OpenBundle(bundle_path, options); });
  HYPER_RETURN_IF_ERROR(AgreeOn(options.communicator, opened.status()));
  const codegen::Manifest& manifest = opened->reader->manifest();
  HYPER_ASSIGN_OR_RETURN(JobResult result,
                         RunJobOn(opened->executor.get(), manifest.model_name,
                                  manifest.ranks_per_replica, opened->launch, options));
  result.text = std::move(opened->kept_text);
  return result;
}

}  // namespace hyper::runtime
