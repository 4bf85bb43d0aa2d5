// What a training step reduces over replicas and when each reduce begins: decided here for the
// trainer and the virtual clock alike.
// Thread safety: ReduceOrder on one thread, functions are pure.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/program.pb.h"
#include "ir/types.h"

namespace hyper::runtime {

// A piece of the arena that is reduced at once.
struct ReducePiece {
  int64_t begin = 0;  // bytes from the arena's start
  int64_t elements = 0;
  ir::DType dtype = ir::DType::kF32;
};

// The gradients of a bucket.
ReducePiece BucketPiece(const program::Program& program, int bucket);

// The statistics that are summed over replicas. Those of one type that only alignment separates are
// one piece: a network has dozens of them, each far too small for a message of its own.
std::vector<ReducePiece> StatisticPieces(const program::Program& program);

// Starts the reduces of one step after the other. Ranks must reduce in one order, even where one
// fails half-way or sees its markers in another order: that of the program's list. A bucket whose
// turn it is begins at its marker with overlap, else when backward is over.
class ReduceOrder {
 public:
  ReduceOrder(int buckets, bool overlap)
      : complete_(static_cast<size_t>(buckets), false), overlap_(overlap) {}

  void BeginStep() {
    complete_.assign(complete_.size(), false);
    started_ = markers_ = 0;
  }
  // The marker of `bucket` is reached; calls start(b) for every bucket b that is to begin now.
  template <typename Start>
  void OnMarker(int bucket, Start start) {
    ++markers_;
    complete_[static_cast<size_t>(bucket)] = true;
    if (!overlap_) return;
    while (started_ < buckets() && complete_[static_cast<size_t>(started_)]) start(started_++);
  }
  // Backward is over, or failed: the rest begins.
  template <typename Start>
  void OnBackwardEnd(Start start) {
    while (started_ < buckets()) start(started_++);
  }
  int buckets() const { return static_cast<int>(complete_.size()); }
  int markers() const { return markers_; }  // seen in this step

 private:
  std::vector<bool> complete_;
  bool overlap_;
  int started_ = 0;
  int markers_ = 0;
};

}  // namespace hyper::runtime
