// Packing of very many blocks: one pass in order of time with a list of free gaps, as an allocator
// works, forwards and backwards; the lower of the two. O(n log n), where packing.cc looks at every
// pair of blocks that meet.
// Thread safety: pure functions.
#pragma once

#include <span>

#include "offload/packing.h"

namespace hyper::offload {

Packing PackBySweep(std::span<const Block> blocks);

// Pairs of blocks that are alive at the same time, each once.
int64_t CountConflicts(std::span<const Block> blocks);

}  // namespace hyper::offload
