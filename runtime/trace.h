// A trace of one step in the Chrome trace event format (chrome://tracing, Perfetto).
// Thread safety: pure function.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "codegen/program.pb.h"
#include "runtime/async_reducer.h"
#include "runtime/trainer.h"

namespace hyper::runtime {

// Rows: 0 instructions (category: role), 1 reduces, 2 phases of the step. Times in microseconds
// from the start of the step. `pid` of the events is the rank.
std::string FormatTrace(const program::Program& program, int rank, const StepTrace& step,
                        std::span<const TracedRun> runs, std::span<const ReduceRecord> reduces);

}  // namespace hyper::runtime
