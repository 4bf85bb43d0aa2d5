// Element conversion from stored data to the element type of a model input.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "ir/types.h"

namespace hyper::runtime {

// A stored value v becomes (v * scale - mean) / std.
struct Affine {
  double scale = 1;
  double mean = 0;
  double std = 1;
  bool IsIdentity() const { return scale == 1 && mean == 0 && std == 1; }
  double Apply(double v) const { return (v * scale - mean) / std; }
};

// Converts `count` elements; false when a value does not fit the integer type `Out`.
using ConvertFunction = bool (*)(const std::byte* in, int64_t count, const Affine& affine,
                                 std::byte* out);

// Inputs are f32, f64, i64, i32, u8 or bool; stored data is anything but bf16. kInvalidArgument
// when float data meets an integer input or an integer input is to be scaled.
Result<ConvertFunction> FindConversion(ir::DType stored, ir::DType input, const Affine& affine);

// The one affine function on 8-bit data that is worth a table: 256 results.
void FillByteTable(ir::DType stored, const Affine& affine, float* table);

}  // namespace hyper::runtime
