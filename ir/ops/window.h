// Sliding windows of convolution and pooling: attributes, their checks, output extents.
// Thread safety: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "ir/ops/common.h"

namespace hyper::ir {

// strides, pads_low, pads_high, dilations: one entry per spatial dim, all required.
std::vector<AttributeDef> WindowAttributes();
// Appends `more` to a copy of `base`.
std::vector<AttributeDef> Extend(std::vector<AttributeDef> base, std::vector<AttributeDef> more);
// A copy of `a` without the attributes that are not in `names`.
Attributes Keep(const Attributes& a, std::span<const std::string_view> names);

// Extents of the output for spatial extents `input`; checks the window attributes against it.
// `first_dim` is the dim of input[0] in its tensor, for messages.
Result<Dims> WindowOutput(const Dims& input, const Dims& kernel, const Attributes& a,
                          int first_dim);
// Fails when some window lies entirely in the padding.
Status ExpectTapInEachWindow(const Dims& input, const Dims& kernel, const Dims& output,
                             const Attributes& a);
Dims Spatial(const Dims& dims);  // dims from 2 on
// N, C of `dims` followed by `spatial`.
Dims WithSpatial(const Dims& dims, const Dims& spatial);

}  // namespace hyper::ir
