// How much communication hides behind computation: one set of formulas for real and virtual runs.
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>

namespace hyper::simulate {

// One reduce on a serial communication lane; nanoseconds of any one clock.
struct ReduceTimes {
  int64_t ready = 0;  // its data was complete
  int64_t begin = 0;
  int64_t end = 0;
};

struct OverlapFigures {
  int64_t reduce = 0;  // sum of all reduces
  int64_t hidden = 0;  // of that, before backward ended
  // What backward can cover: the same reduces, each as long as it was, on a lane that is never idle
  // while the data of one is complete, as far as they then lie before the end of backward. No order
  // and no start times hide more: a reduce cannot begin before its data is complete, and a serial
  // lane cannot do more than be busy.
  int64_t coverable = 0;
  int64_t exposed = 0;  // from the end of backward to that of the last reduce
};

OverlapFigures MeasureOverlap(std::span<const ReduceTimes> reduces, int64_t backward_end);

}  // namespace hyper::simulate
