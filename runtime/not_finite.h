// Numbers that are not finite: which tensor holds them, and how to print them.
// Thread safety: pure functions; FirstNotFinite is collective.
#pragma once

#include <string>

#include "base/status.h"
#include "runtime/communicator.h"
#include "runtime/executor.h"

namespace hyper::runtime {

// The first tensor of f32 or f64 that holds a value which is not finite, as words: "input 'image'
// holds inf (rank 1)", "parameter 'fc.weight' holds nan". Inputs (those of the last micro-batch)
// come before parameters, frozen weights and states, those before gradients: the cause before what
// follows from it. Empty when there is none. Equal on all ranks.
Result<std::string> FirstNotFinite(const Executor& executor, Communicator* communicator);

// "nan" (whatever its sign), "inf", "-inf", or the number.
std::string NumberText(double value);

}  // namespace hyper::runtime
