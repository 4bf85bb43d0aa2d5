// The folder of a run (run.dir) and that of its checkpoints: that one job at a time writes there,
// that jobs do not mix their files, that outputs can be written at all. Layout in docs/formats.md.
// Thread safety: none; used on rank 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/status.h"

namespace hyper::runtime {

// Whether a file can be written there: creates PATH.tmp, as WriteFileAtomic does, and removes it.
// What is at `path` stays; anything but a regular file is kInvalidArgument.
Status CheckOutputFile(FileSystem* fs, const std::string& path);

// Whether the folder can be made and written: tries it in the nearest one that is there.
Status CheckOutputFolder(FileSystem* fs, const std::string& folder);

struct RunFolderOptions {
  std::string dir;             // run.dir
  std::string checkpoint_dir;  // may lie elsewhere
  bool training = true;        // false: an evaluation, which trainings do not exclude
  bool overwrite = false;      // what an earlier job left may be removed
  bool dry_run = false;        // checks only; makes no folder and takes no lock
  std::string start;  // the checkpoint that the run starts from; empty: the bundle's values
  int64_t start_step = 0;
  std::vector<int64_t> damaged;  // steps of checkpoints passed over when it was chosen
};

class RunFolder {
 public:
  // Makes and locks both folders. kFailedPrecondition, with the choices, when another job works
  // there or (training only) when an earlier one has left metrics or checkpoints that this run does
  // not continue. A run continues them when its checkpoint lies in `checkpoint_dir` and is the
  // last.
  static Result<std::unique_ptr<RunFolder>> Open(FileSystem* fs, const RunFolderOptions& options);

  // Removes what `overwrite` allows to remove. After all else that can fail before the first step.
  Status Clear();

  // Steps up to which records of metrics.jsonl belong to this run.
  int64_t kept_steps() const { return continues_ ? options_.start_step : 0; }
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  RunFolder(FileSystem* fs, RunFolderOptions options) : fs_(fs), options_(std::move(options)) {}
  Status CheckDryRun() const;
  Status MakeAndLock(const std::string& folder, const char* key);
  Status CheckUnused();
  Status RefuseUsed(const std::string& found, bool checkpoints) const;

  FileSystem* fs_;
  const RunFolderOptions options_;
  bool continues_ = false;
  std::vector<std::unique_ptr<FileLock>> locks_;
  std::vector<std::string> notes_;
};

}  // namespace hyper::runtime
