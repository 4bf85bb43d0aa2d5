// Reads the micro-batches of one replica ahead of the training step on a thread of its own, in the
// order in which the step takes them. Buffers are made once; nothing is allocated afterwards.
// Thread safety: one consumer thread; the reading thread is internal.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"

namespace hyper::runtime {

struct LoaderOptions {
  int64_t micro_batch = 1;    // samples
  int64_t micro_batches = 1;  // per replica and step
  int replicas = 1;
  int replica = 0;
  int64_t position = 0;  // of the training stream, where the first step begins
  int64_t seed = 0;
  bool shuffle = true;
  int64_t prefetch = 2;  // micro-batches read ahead; 0 reads in the caller's thread
  // Inputs (indices) of which a step needs all micro-batches before its first one (label counts).
  std::vector<int> count_inputs;
};

class BatchLoader {
 public:
  static std::unique_ptr<BatchLoader> Create(std::shared_ptr<const Dataset> dataset,
                                             const LoaderOptions& options);
  virtual ~BatchLoader() = default;

  // Call order per step: BeginStep, then NextMicroBatch micro_batches times. Bytes stay valid until
  // the next call of the same function.
  // Row-major bytes of count input k for micro-batch i at [i * count_inputs.size() + k].
  virtual Result<std::span<const std::span<const std::byte>>> BeginStep() = 0;
  // Row-major bytes of every input.
  virtual Result<std::span<const std::span<const std::byte>>> NextMicroBatch() = 0;
};

}  // namespace hyper::runtime
