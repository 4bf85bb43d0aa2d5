// How autodiff adds what several consumers contribute to the gradient of one value.
// Thread safety: none.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace hyper::ir {

// The sum of `parts` (values of one type, at least one), in order, with the context set on
// `builder`. Two forms that unrolled steps and splits give cost one node instead of a chain of full
// sums, which would make n steps quadratic in n:
//   zero-padded parts that do not overlap along one axis become a concat;
//   three or more dots of one spec and source, equal in shape, become one dot over stacked
//   operands.
ValueId SumContributions(Builder& builder, std::vector<ValueId> parts);

}  // namespace hyper::ir
