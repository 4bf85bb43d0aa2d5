// Which instruction sets the math library may use. It is asked once per process: the library fixes
// its choice when it is first used.
// Thread safety: all functions may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace hyper::runtime {

// Caps the library at what processors with `features` (names as in /proc/cpuinfo; the bundle's
// Manifest::cpu_features) have. kFailedPrecondition when the choice was made before in this process
// and is not the one that this cap would give.
Status CapInstructionSet(const std::vector<std::string>& features);

// What the library really uses, its name for it ("avx512_core"). Fixes the choice.
std::string InstructionSetName();

}  // namespace hyper::runtime
