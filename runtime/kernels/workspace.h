// Sizes of the library kernels' workspaces: hyperc asks for them while it plans the arena.
// Thread safety: the calling thread's OpenMP team size is changed for the time of a call.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/kernels/kernels.h"

namespace hyper::runtime {

// Thread counts that a plan for up to `max_threads` (1 or more) looks at: 1, 2, 4, ... and
// `max_threads` itself, ascending.
std::vector<int> PlannedThreadCounts(int max_threads);

// Bytes that the call needs with exactly `threads` threads.
Result<int64_t> WorkspaceBytes(const std::string& primitive, const std::string& op,
                               const ir::Attributes& attributes, Operands operands, int threads);

// The workspace cap: the largest need over PlannedThreadCounts(max_threads).
Result<int64_t> WorkspaceCap(const std::string& primitive, const std::string& op,
                             const ir::Attributes& attributes, Operands operands, int max_threads);

}  // namespace hyper::runtime
