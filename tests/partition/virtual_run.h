// A function on virtual ranks: every rank runs every node on its slices, with the steps between
// them that the layouts ask for.
#pragma once

#include <map>
#include <vector>

#include "partition/propagate.h"
#include "tests/partition/virtual_ranks.h"

namespace hyper::partition {

struct VirtualRun {
  // What each result is, put together from the ranks; all ranks that hold an element agree.
  std::vector<Local> results;
  // Steps that sent something.
  int64_t collectives = 0;
};

// `arguments`: whole tensors, one per argument. `skip`: the number of a step that sends something
// and is left out (each rank takes its own data for it), a fault that must be seen; -1: none.
VirtualRun RunOnVirtualRanks(const Mesh& mesh, const ir::Function& function,
                             const FunctionLayouts& layouts, const std::vector<Local>& arguments,
                             int64_t skip = -1);

// The function itself by the reference kernels.
std::vector<Local> RunWhole(const ir::Function& function, const std::vector<Local>& arguments);

}  // namespace hyper::partition
