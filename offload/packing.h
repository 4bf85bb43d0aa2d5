// Static packing: offsets for blocks with known lifetimes so that blocks alive at the same time
// never overlap and the highest end is small. The general problem is NP-hard; several greedy orders
// are tried and the best is improved by a seeded hill climb with a fixed amount of work, so equal
// input gives equal output on every machine. Where many millions of pairs meet (hundreds of
// layers), one sweep over time takes the place of the orders, see packing_sweep.h. Thread safety:
// pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hyper::offload {

// `bytes` includes alignment and guards; first and last are inclusive points in time.
struct Block {
  int first = 0;
  int last = 0;
  int64_t bytes = 0;
};

struct Packing {
  std::vector<int64_t> offsets;  // per block
  int64_t peak = 0;              // largest offset + bytes
};

Packing Pack(std::span<const Block> blocks);

}  // namespace hyper::offload
