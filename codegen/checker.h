// The checker: proves of every compiled program, with no code of the planner, that
//   - each operand's byte range lies inside the place of its root, and places of roots that hold
//     something at the same time never overlap;
//   - every temporary and every result is written before it is read;
//   - each gradient bucket has exactly one marker per step, behind the last write of its range.
// Runs on every compile.
// Thread safety: pure functions.
#pragma once

#include "base/status.h"
#include "codegen/program.pb.h"
#include "offload/placement.h"

namespace hyper::codegen {

// kInternal naming subprogram, instruction and tensor: any finding is a bug of the compiler.
// Views with more than 256 separate runs are checked by their ends only.
Status CheckProgram(const offload::PlacedModule& placed, const program::Program& program);

}  // namespace hyper::codegen
