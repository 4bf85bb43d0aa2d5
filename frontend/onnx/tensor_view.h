// A tensor of a file as a view of a parameter: its dims permuted, then reshaped.
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "ir/types.h"

namespace hyper::onnx_frontend {

struct TensorView {
  std::vector<int> permutation;  // dim i of the result is dim permutation[i]; empty: as it is
  ir::Dims dims;                 // of the file's tensor
};

// Element (i, j, ..) of the result is the element with its indices at `permutation`.
ir::HostTensor PermuteTensor(const ir::HostTensor& value, const std::vector<int>& permutation);
// The same elements under other dims (as many).
ir::HostTensor ReshapeTensor(const ir::HostTensor& value, ir::Dims dims);
ir::HostTensor ApplyView(const ir::HostTensor& value, const TensorView& view);
// True when `view` can be applied to a tensor of these dims.
bool FitsDims(const TensorView& view, const ir::Dims& dims);

// How `file` comes from `value`, bit for bit; nullopt when it does not. Of several ways `preferred`
// (may be empty), then the order as it is, then the first in lexicographic order.
std::optional<TensorView> FindView(const ir::HostTensor& value, const ir::HostTensor& file,
                                   const std::vector<int>& preferred);

}  // namespace hyper::onnx_frontend
