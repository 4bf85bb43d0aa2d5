// Tells lowering how much workspace the runtime's library kernels need.
// Thread safety: a query may be called by one thread at a time.
#pragma once

#include "lower/lowered.h"

namespace hyper::tools {

// Workspace caps for launches with up to `max_threads` threads per rank, on this processor and
// under the instruction set that runtime::CapInstructionSet has fixed.
lower::WorkspaceQuery MakeWorkspaceQuery(int max_threads);

}  // namespace hyper::tools
