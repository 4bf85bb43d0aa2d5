// Which sample is the n-th of the training stream. The stream is epoch 0, epoch 1, .. without
// gaps, each a permutation drawn by (seed, epoch): the samples left at the end of an epoch that do
// not fill a global batch open the next one, so nothing is padded or dropped. Step s of global
// batch G takes positions [s*G, (s+1)*G); global micro-batch j of the step takes slice j of them.
// The stream does not depend on the number of replicas or micro-batches.
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>

#include "runtime/data/random.h"

namespace hyper::runtime {

class Sampler {
 public:
  // samples >= 1.
  Sampler(int64_t samples, int64_t seed, bool shuffle)
      : samples_(samples), seed_(seed), shuffle_(shuffle), permutation_(samples, seed, 0) {}
  int64_t At(int64_t position) {
    const int64_t epoch = position / samples_;
    const int64_t index = position % samples_;
    if (!shuffle_) return index;
    if (epoch != epoch_) {
      permutation_ = Permutation(samples_, seed_, epoch);
      epoch_ = epoch;
    }
    return permutation_.At(index);
  }
  int64_t samples() const { return samples_; }

 private:
  int64_t samples_;
  int64_t seed_;
  bool shuffle_;
  int64_t epoch_ = 0;
  Permutation permutation_;
};

}  // namespace hyper::runtime
