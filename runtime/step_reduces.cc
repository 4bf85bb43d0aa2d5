#include "runtime/step_reduces.h"

#include <algorithm>

#include "runtime/program_io.h"

namespace hyper::runtime {

ReducePiece BucketPiece(const program::Program& program, int bucket) {
  const program::Bucket& range = program.buckets(bucket);
  const ir::DType dtype = DTypeOf(range.dtype());
  return {range.begin(), (range.end() - range.begin()) / ir::DTypeBytes(dtype), dtype};
}

std::vector<ReducePiece> StatisticPieces(const program::Program& program) {
  constexpr int64_t kAlignment = 64;
  std::vector<ReducePiece> pieces;
  for (const program::Slot& slot : program.slots()) {
    if (slot.storage() != program::STATISTIC) continue;
    const ir::DType dtype = DTypeOf(slot.place().dtype());
    const int64_t bytes = slot.place().end() - slot.place().begin();
    pieces.push_back({slot.place().begin(), bytes / ir::DTypeBytes(dtype), dtype});
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const ReducePiece& a, const ReducePiece& b) { return a.begin < b.begin; });
  std::vector<ReducePiece> merged;
  for (const ReducePiece& piece : pieces) {
    const int64_t width = ir::DTypeBytes(piece.dtype);
    if (!merged.empty()) {
      ReducePiece& last = merged.back();
      const int64_t gap = piece.begin - (last.begin + last.elements * width);
      if (last.dtype == piece.dtype && gap < kAlignment && gap % width == 0) {
        last.elements = (piece.begin - last.begin) / width + piece.elements;
        continue;
      }
    }
    merged.push_back(piece);
  }
  return merged;
}

}  // namespace hyper::runtime
