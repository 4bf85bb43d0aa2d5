// Arithmetic on View: what transpose, slice, broadcast and reshape do to strides. All strides are
// in elements and never negative.
// Thread safety: pure functions.
#pragma once

#include <optional>

#include "lower/lowered.h"

namespace hyper::lower {

// Row-major view of a whole buffer.
View DenseView(const ir::TensorType& type);
// Dense buffer whose dims lie in memory in the order given, outermost first.
View DenseViewInOrder(const ir::TensorType& type, const std::vector<int>& order);

View TransposeView(const View& v, const ir::Dims& perm);
View SliceView(const View& v, const ir::Dims& starts, const ir::Dims& limits,
               const ir::Dims& strides);
View BroadcastView(const View& v, const ir::Dims& shape, const ir::Dims& dims);
// nullopt where the elements in row-major order of the new shape have no constant strides.
std::optional<View> ReshapeView(const View& v, const ir::Dims& shape);
// The view w with TransposeView(w, perm) == v.
View UntransposeView(const View& v, const ir::Dims& perm);

bool IsRowMajor(const View& v);  // offset 0 included
// No two elements share an address.
bool IsInjective(const View& v);
// Equal addresses for all elements (strides of extents of 1 do not count).
bool SameElements(const View& a, const View& b);
// Dims sorted from the far to the near stride; broadcast dims and extents of 1 keep their place
// among neighbours.
std::vector<int> OrderOf(const View& v);
// Distinct elements touched.
int64_t DistinctElements(const View& v);

}  // namespace hyper::lower
