#include "runtime/run_folder.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "runtime/checkpoint.h"

namespace hyper::runtime {
namespace {

constexpr char kMetrics[] = "metrics.jsonl";
constexpr char kEvaluations[] = "eval.jsonl";
constexpr char kProbe[] = ".write-test";

// Absolute, without links, ".", ".." and slashes at the end, as far as the path exists.
std::filesystem::path RealPath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return path;
  std::filesystem::path real = std::filesystem::weakly_canonical(absolute, error);
  if (error) real = absolute.lexically_normal();
  return real.has_filename() ? real : real.parent_path();
}

// Two names of one folder are equal, whether it exists or not.
bool SameFolder(const std::string& a, const std::string& b) {
  std::error_code error;
  // Also where it is mounted twice.
  if (std::filesystem::equivalent(a, b, error) && !error) return true;
  return RealPath(a) == RealPath(b);
}

// Whether the checkpoint stands in the folder: its name does, or what a link of that name means.
bool LiesIn(const std::string& checkpoint, const std::string& folder) {
  std::string plain = checkpoint;
  while (plain.size() > 1 && plain.back() == '/') plain.pop_back();
  return SameFolder(DirName(plain), folder) ||
         SameFolder(RealPath(plain).parent_path().string(), folder);
}

Status CreateAndRemove(FileSystem* fs, const std::string& path) {
  HYPER_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, fs->Create(path));
  HYPER_RETURN_IF_ERROR(file->Close());
  return fs->RemoveAll(path);
}

}  // namespace

Status CheckOutputFolder(FileSystem* fs, const std::string& folder) {
  std::string nearest = folder;
  while (!fs->Exists(nearest)) nearest = DirName(nearest);
  return CreateAndRemove(fs, JoinPath(nearest, kProbe));
}

Status CheckOutputFile(FileSystem* fs, const std::string& path) {
  if (fs->Exists(path)) HYPER_RETURN_IF_ERROR(fs->Size(path).status());
  return CreateAndRemove(fs, path + ".tmp").WithContext(fmt::format("'{}'", path));
}

Result<std::unique_ptr<RunFolder>> RunFolder::Open(FileSystem* fs,
                                                   const RunFolderOptions& options) {
  std::unique_ptr<RunFolder> folder(new RunFolder(fs, options));
  folder->continues_ = !options.start.empty() && LiesIn(options.start, options.checkpoint_dir);
  if (options.dry_run) {
    HYPER_RETURN_IF_ERROR(folder->CheckDryRun());
  } else {
    HYPER_RETURN_IF_ERROR(folder->MakeAndLock(options.dir, "run.dir"));
    // Also in the default layout: the run.checkpoint.dir of a job with another run.dir may be ours.
    if (options.training) {
      HYPER_RETURN_IF_ERROR(fs->MakeDirs(options.checkpoint_dir).WithContext("run.checkpoint.dir"));
    }
    if (options.training && !SameFolder(options.checkpoint_dir, options.dir)) {
      HYPER_RETURN_IF_ERROR(folder->MakeAndLock(options.checkpoint_dir, "run.checkpoint.dir"));
    }
  }
  if (options.training) HYPER_RETURN_IF_ERROR(folder->CheckUnused());
  return folder;
}

Status RunFolder::CheckDryRun() const {
  HYPER_RETURN_IF_ERROR(
      CheckOutputFolder(fs_, options_.dir).WithContext(fmt::format("run.dir '{}'", options_.dir)));
  if (!options_.training) return Status::Ok();
  return CheckOutputFolder(fs_, options_.checkpoint_dir)
      .WithContext(fmt::format("run.checkpoint.dir '{}'", options_.checkpoint_dir));
}

Status RunFolder::MakeAndLock(const std::string& folder, const char* key) {
  const std::string where = fmt::format("{} '{}'", key, folder);
  HYPER_RETURN_IF_ERROR(fs_->MakeDirs(folder).WithContext(key));
  HYPER_RETURN_IF_ERROR(CreateAndRemove(fs_, JoinPath(folder, kProbe)).WithContext(key));
  Result<std::unique_ptr<FileLock>> lock = FileLock::Take(
      JoinPath(folder, options_.training ? "train.lock" : "eval.lock"), ThisProcess());
  if (lock.ok()) {
    locks_.push_back(std::move(lock).value());
    return Status::Ok();
  }
  if (lock.status().code() != StatusCode::kUnimplemented) {
    return lock.status().WithContext(where);
  }
  notes_.push_back(
      fmt::format("{}; nothing keeps two jobs from writing to {}", lock.status().message(), where));
  return Status::Ok();
}

// What an earlier job left is found in files that jobs write in the course of time: an empty
// metrics.jsonl tells of a job that did not come to its first step.
Status RunFolder::CheckUnused() {
  HYPER_ASSIGN_OR_RETURN(std::vector<int64_t> steps, CheckpointSteps(fs_, options_.checkpoint_dir));
  if (options_.overwrite) return Status::Ok();
  if (continues_) {
    // Damaged ones were passed over when this one was chosen; the run will replace them.
    std::erase_if(steps, [&](int64_t step) {
      const std::vector<int64_t>& damaged = options_.damaged;
      return step <= options_.start_step ||
             std::find(damaged.begin(), damaged.end(), step) != damaged.end();
    });
    if (steps.empty()) return Status::Ok();
    return FailedPrecondition(fmt::format(
        "'{}' holds later checkpoints (up to step {}) than the one to start from (step {}): start "
        "from the last, choose another folder with --set run.dir=DIR, or remove the later ones "
        "with --overwrite",
        options_.checkpoint_dir, steps.back(), options_.start_step));
  }
  const std::string metrics = JoinPath(options_.dir, kMetrics);
  bool has_metrics = false;
  if (fs_->Exists(metrics)) {
    HYPER_ASSIGN_OR_RETURN(const int64_t bytes, fs_->Size(metrics));
    has_metrics = bytes > 0;
  }
  if (!steps.empty()) {
    return RefuseUsed(fmt::format("checkpoints (up to step {})", steps.back()), true);
  }
  return has_metrics ? RefuseUsed(kMetrics, false) : Status::Ok();
}

Status RunFolder::RefuseUsed(const std::string& found, bool checkpoints) const {
  const std::string more = checkpoints ? fmt::format(", continue that job with --checkpoint {},",
                                                     options_.checkpoint_dir)
                                       : "";
  return FailedPrecondition(fmt::format(
      "run.dir '{}' holds {} of an earlier job: choose another folder with --set run.dir=DIR{} or "
      "remove its metrics and checkpoints with --overwrite",
      options_.dir, found, more));
}

Status RunFolder::Clear() {
  if (!options_.training || !options_.overwrite) return Status::Ok();
  if (continues_) return RemoveCheckpointsAfter(fs_, options_.checkpoint_dir, options_.start_step);
  HYPER_RETURN_IF_ERROR(RemoveCheckpointsAfter(fs_, options_.checkpoint_dir, -1));
  HYPER_RETURN_IF_ERROR(fs_->RemoveAll(JoinPath(options_.dir, kEvaluations)));
  return fs_->RemoveAll(JoinPath(options_.dir, kMetrics));
}

}  // namespace hyper::runtime
