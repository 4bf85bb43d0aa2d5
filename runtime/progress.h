// Words for people: the start-up table, a progress bar on a terminal, plain lines otherwise.
// Thread safety: none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/reporter.h"

namespace hyper::runtime {

// "batch 32 x 4 micro-batches x 2 replicas = 256 samples per step" and the other facts, one a line.
std::string FormatStart(const StartInfo& info);
// "step 120/2000  loss 0.4321  lr 0.0003  1234 samples/s  8.1 ms"
std::string FormatStep(const StepReport& report, int64_t steps);
std::string FormatEval(const EvalReport& report);
// "1:02:03", "4:05"
std::string FormatDuration(double seconds);
// One line of at most `width` columns: bar, step, loss, samples/s, time left; what does not fit is
// left out from the right, the bar first.
std::string FormatBar(const StepReport& report, int64_t first_step, int64_t steps,
                      double seconds_left, int width);

struct TextReporterOptions {
  bool terminal = false;
  std::function<int()> width;     // columns of the terminal; empty: 80
  int64_t log_every = 0;          // steps between plain lines; 0: as StartInfo says
  std::function<double()> clock;  // seconds, for redraws and time left; empty: a steady clock
  double redraw_seconds = 0.1;
};

// Writes through `write` (rank 0 only; other ranks say nothing).
std::unique_ptr<Reporter> MakeTextReporter(std::function<void(std::string_view)> write,
                                           TextReporterOptions options);

}  // namespace hyper::runtime
