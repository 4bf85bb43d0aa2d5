// Byte accounting of generated kernels, from their operands alone: what each call moves and what
// its fused group cannot avoid.
//
// A group is what one fused group of core ops became: usually one kernel, two for a reduction in
// two stages (partial sums, then their combination and what is fused behind it), more where an op
// needs a fill or a copy first. A kernel moves each of its operands once (twice where it adds to
// what is there); equal operands count again. The bound of a group counts each element once: read
// when something before the group made it, written when something behind the group (or the caller)
// reads it. Partial sums and what else lives inside the group count nothing: they raise the ratio.
// Thread safety: pure functions.
#pragma once

#include <vector>

#include "lower/lowered.h"

namespace hyper::lower {

// Numbers the groups of the generated ops 1, 2, ... in execution order (`group` of equal ops stays
// equal, 0 becomes a group of its own) and sets `bytes_moved` and the bound of each call. The
// bounds of a group's calls add up to that of the group: an element belongs to its first reader.
void AccountTraffic(const std::vector<Root>& roots, LoweredFunction* function);

}  // namespace hyper::lower
