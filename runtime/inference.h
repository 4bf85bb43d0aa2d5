// The forward pass over a data set: one .npy file per output of the model, a row per sample.
// Thread safety: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "runtime/data/dataset.h"
#include "runtime/executor.h"
#include "runtime/program_io.h"

namespace hyper::runtime {

// One file that was written.
struct WrittenOutput {
  std::string path;
  ir::TensorType type;  // dim 0: samples
};

class Inference {
 public:
  // kFailedPrecondition when the program has no @eval or an output without a row per sample, and
  // for outputs whose file names would be equal.
  static Result<std::unique_ptr<Inference>> Create(Executor* executor);

  // The files that Run writes, in the order of the outputs.
  std::vector<std::string> Paths(const std::string& dir) const;

  // All samples in order, into DIR/NAME.npy; '/' and other bytes that file names lack become '_'.
  // The last micro-batch is filled up with copies of its first sample, which are not written. The
  // files appear when all are complete; a run that fails leaves none of its unfinished ones.
  Result<std::vector<WrittenOutput>> Run(const Dataset& dataset, FileSystem* fs,
                                         const std::string& dir);

 private:
  struct Output {
    const program::Operand* place = nullptr;
    std::string file;
    std::vector<std::byte> rows;  // one micro-batch, row-major
    int64_t row_bytes = 0;
  };

  explicit Inference(Executor* executor) : executor_(executor) {}
  Status FindOutputs();
  // `made`: paths of the unfinished files that stand there now.
  Result<std::vector<WrittenOutput>> Write(const Dataset& dataset, FileSystem* fs,
                                           const std::string& dir, std::vector<std::string>* made);
  Status RunMicroBatch(const Dataset& dataset, int64_t first, int64_t real);

  Executor* executor_;
  int64_t micro_batch_ = 1;
  std::vector<InputSpec> inputs_;
  std::vector<const program::Slot*> input_slots_;
  std::vector<std::vector<std::byte>> buffers_;  // one micro-batch per input, row-major
  std::vector<Output> outputs_;
};

}  // namespace hyper::runtime
