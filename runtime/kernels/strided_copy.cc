// Row-major <-> strided copies, for slots, results and reference kernels (not on the hot path).
#include <cstring>

#include "runtime/kernels/kernels.h"

namespace hyper::runtime {
namespace {

// Calls visit(byte offset inside the place, byte offset inside the dense copy, contiguous bytes).
template <typename Visit>
void ForEachRun(const program::Operand& place, const Visit& visit) {
  const int rank = place.dims_size();
  const int64_t width = ir::DTypeBytes(DTypeOf(place.dtype()));
  int64_t elements = 1;
  for (int64_t extent : place.dims()) elements *= extent;
  if (elements == 0) return;
  // The innermost dims that are already contiguous move in one piece.
  int64_t run = 1;
  int outer = rank;
  while (outer > 0 && (place.strides(outer - 1) == run || place.dims(outer - 1) == 1)) {
    run *= place.dims(outer - 1);
    --outer;
  }
  ir::Dims index(static_cast<size_t>(outer), 0);
  for (int64_t dense = 0; dense < elements; dense += run) {
    int64_t offset = 0;
    for (int d = 0; d < outer; ++d) offset += index[static_cast<size_t>(d)] * place.strides(d);
    visit(offset * width, dense * width, run * width);
    for (int d = outer - 1; d >= 0; --d) {
      if (++index[static_cast<size_t>(d)] < place.dims(d)) break;
      index[static_cast<size_t>(d)] = 0;
    }
  }
}

}  // namespace

void CopyToDense(const program::Operand& place, const char* arena, std::byte* dense) {
  const char* base = arena + place.offset();
  ForEachRun(place, [&](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(dense + to, base + from, static_cast<size_t>(bytes));
  });
}

void CopyFromDense(const program::Operand& place, const std::byte* dense, char* arena) {
  char* base = arena + place.offset();
  ForEachRun(place, [&](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(base + to, dense + from, static_cast<size_t>(bytes));
  });
}

}  // namespace hyper::runtime
