// Lifetimes of the temporaries of one lowered function, in ops of its execution order.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lower/lowered.h"

namespace hyper::offload {

// A root is occupied from the first to the last op that touches it, both included: an op's inputs
// and outputs never share bytes unless lowering gave them one root.
struct Lifetime {
  lower::RootId root;
  int first = 0;
  int last = 0;
  int64_t bytes = 0;
};

// Dense size of a root in bytes.
int64_t RootBytes(const lower::Root& root);

// One entry per kTemporary root that `function` touches, in order of first touch.
std::vector<Lifetime> TemporaryLifetimes(const lower::LoweredModule& module,
                                         const lower::LoweredFunction& function);

// Largest sum of bytes of lifetimes that overlap in time.
int64_t LiveLowerBound(std::span<const Lifetime> lifetimes);

}  // namespace hyper::offload
