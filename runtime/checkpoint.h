// Saved states of a training job; format in checkpoint.md.
// Thread safety: none; one saver per folder.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "ir/types.h"
#include "runtime/executor.h"

namespace hyper::runtime {

inline constexpr int kCheckpointVersion = 1;

struct CheckpointInfo {
  std::string model;
  int64_t step = 0;      // optimizer steps done
  int64_t position = 0;  // samples of the training stream used
  int64_t seed = 0;
};

using NamedTensors = std::map<std::string, ir::HostTensor>;

struct LoadedCheckpoint {
  CheckpointInfo info;
  std::string path;                // the folder that was read
  NamedTensors tensors;            // parameters, frozen weights, states by key in the file
  NamedTensors optimizer;          // key "SLOT:PARAMETER"
  std::vector<std::string> notes;  // damaged checkpoints that were passed over: why
  std::vector<int64_t> damaged;    // and their steps
};

// The name that SaveCheckpoint gives the state after `step` steps.
std::string CheckpointPath(const std::string& folder, int64_t step);

// Steps of the checkpoints in `folder`, ascending; none without the folder.
Result<std::vector<int64_t>> CheckpointSteps(FileSystem* fs, const std::string& folder);

// Removes those above `step` (-1: all), and what interrupted saves of them left.
Status RemoveCheckpointsAfter(FileSystem* fs, const std::string& folder, int64_t step);

// Writes `folder`/step-N atomically, makes it the latest and returns its path. On an error what was
// there before is untouched. Call on one rank, when no subprogram runs.
Result<std::string> SaveCheckpoint(FileSystem* fs, const std::string& folder,
                                   const CheckpointInfo& info, const Executor& executor);

// `path`: one checkpoint or a folder of them (then the newest intact one). kNotFound without any,
// kDataLoss when none is intact, kFailedPrecondition for another format version.
Result<LoadedCheckpoint> LoadCheckpoint(FileSystem* fs, const std::string& path);

// Parameters, frozen weights and states only: all that an export needs.
Result<NamedTensors> LoadTensors(FileSystem* fs, const std::string& path);

// Writes a loaded state into the executor's arena. kFailedPrecondition, naming the tensor, when the
// checkpoint belongs to another model or optimizer; the arena is then unchanged.
Status RestoreCheckpoint(const LoadedCheckpoint& checkpoint, Executor* executor);

// The executor's parameters, frozen weights and states as they are now.
NamedTensors CollectTensors(const Executor& executor);

}  // namespace hyper::runtime
