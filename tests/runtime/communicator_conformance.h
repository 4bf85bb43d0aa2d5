// What every Communicator must do; called on every rank of any implementation.
#pragma once

#include "base/status.h"
#include "runtime/communicator.h"

namespace hyper::runtime::testing {

// kInternal with the first thing that is wrong on this rank.
Status CheckConformance(Communicator& communicator);

}  // namespace hyper::runtime::testing
