// Memory safety of a program that came from a file: after ValidateProgram every operand, slot,
// result and bucket lies inside the arena and every index is in range, so an executor that trusts
// the byte ranges cannot leave the arena.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "base/status.h"
#include "codegen/program.pb.h"

namespace hyper::codegen {

// Beyond any node's memory.
inline constexpr int64_t kMaxArenaBytes = int64_t{1} << 46;

int64_t DTypeBytes(program::DType dtype);

// Bytes that a strided view may touch, relative to its element (0,..,0); {0, 0} without elements.
// kDataLoss when the numbers are beyond any real tensor.
Result<std::pair<int64_t, int64_t>> TouchedBytes(std::span<const int64_t> dims,
                                                 std::span<const int64_t> strides,
                                                 int64_t element_bytes);

// Number of elements; kDataLoss for negative extents and for more than 2^46.
Result<int64_t> CheckedElements(std::span<const int64_t> dims);

struct ProgramContext {
  int64_t tensors_bytes = 0;  // size of tensors.bin
  bool has_kernels = false;   // is there a kernels.so
};

// kDataLoss naming subprogram, instruction and operand; kFailedPrecondition for another format.
Status ValidateProgram(const program::Program& program, const ProgramContext& context);

}  // namespace hyper::codegen
