// Loss and accuracy on held-out data, sharded over replicas by micro-batch.
// Thread safety: one thread; every rank calls Run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/communicator.h"
#include "runtime/data/dataset.h"
#include "runtime/executor.h"
#include "runtime/program_io.h"
#include "runtime/rank_table.h"

namespace hyper::runtime {

struct EvalReport {
  int64_t step = 0;                // steps of training before it
  double loss = 0;                 // weighted mean
  std::optional<double> accuracy;  // of the first cross-entropy term whose logits are an output
  int64_t samples = 0;             // that counted
  double seconds = 0;
};

class Evaluator {
 public:
  // kFailedPrecondition when the program has no @eval or no loss.
  static Result<std::unique_ptr<Evaluator>> Create(Executor* executor, Communicator* communicator,
                                                   const RankTable& ranks);

  // All samples in order. The last micro-batch is padded with copies of its first sample, which do
  // not count: by ignored labels where every term has an ignore_index, else by evaluating a
  // micro-batch of copies alone and subtracting its share. A loss that is an output of the model
  // cannot be split into samples: then the samples that do not fill a micro-batch are left out
  // (EvalReport::samples tells). kInvalidArgument when no sample is left. What
  // fails on one rank is returned on all.
  Result<EvalReport> Run(const Dataset& dataset);

 private:
  struct Term {
    double weight = 1;
    int64_t constant_count = 0;
    const program::Operand* loss = nullptr;
    const program::Operand* count = nullptr;  // null: constant
    int labels_input = -1;
    std::optional<int64_t> ignore_index;
  };
  // Sums over micro-batches: per term loss and count, then correct and judged labels, samples.
  using Totals = std::vector<double>;

  Evaluator(Executor* executor, Communicator* communicator)
      : executor_(executor), communicator_(communicator) {}
  Status FindParts(const RankTable& ranks);
  void FindAccuracy();
  Status RunMicroBatch(const Dataset& dataset, int64_t first, int64_t real, Totals* totals);
  Status RunAndAdd(double factor, Totals* totals);
  void WriteInputs();
  void FillRows(size_t input, int64_t from_row);
  void IgnoreRows(int input, int64_t from_row, int64_t label);
  void AddAccuracy(int64_t real, Totals* totals);

  Executor* executor_;
  Communicator* communicator_;
  int replicas_ = 1;
  int replica_ = 0;
  int64_t micro_batch_ = 1;
  std::vector<InputSpec> inputs_;
  std::vector<const program::Slot*> input_slots_;
  std::vector<std::vector<std::byte>> buffers_;  // one micro-batch per input, row-major
  std::vector<Term> terms_;
  bool mask_by_ignore_ = true;
  bool whole_micro_batches_ = false;  // some term cannot be split into samples
  bool count_labels_ = false;
  const program::Operand* logits_ = nullptr;  // null: no accuracy
  size_t accuracy_term_ = 0;
  int class_axis_ = 0;
  std::vector<std::byte> logits_buffer_;
};

}  // namespace hyper::runtime
