// One outcome for all ranks, so that none waits for a rank that has given up.
#pragma once

#include "base/status.h"
#include "runtime/communicator.h"

namespace hyper::runtime {

// All ranks learn whether all are fine: ok, or the first failing rank's status everywhere. The
// message names that rank unless every rank failed alike. Collective.
Status AgreeOn(Communicator* communicator, const Status& status);

}  // namespace hyper::runtime
