#include "simulate/overlap.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace hyper::simulate {

OverlapFigures MeasureOverlap(std::span<const ReduceTimes> reduces, int64_t backward_end) {
  OverlapFigures figures;
  for (const ReduceTimes& reduce : reduces) {
    const int64_t duration = reduce.end - reduce.begin;
    figures.reduce += duration;
    figures.hidden += std::clamp<int64_t>(backward_end - reduce.begin, 0, duration);
    figures.exposed = std::max(figures.exposed, reduce.end - backward_end);
  }
  std::vector<ReduceTimes> by_ready(reduces.begin(), reduces.end());
  std::stable_sort(by_ready.begin(), by_ready.end(),
                   [](const ReduceTimes& a, const ReduceTimes& b) { return a.ready < b.ready; });
  int64_t free_at = std::numeric_limits<int64_t>::min();
  for (const ReduceTimes& reduce : by_ready) {
    const int64_t duration = reduce.end - reduce.begin;
    const int64_t begin = std::max(free_at, reduce.ready);
    free_at = begin + duration;
    figures.coverable += std::clamp<int64_t>(backward_end - begin, 0, duration);
  }
  return figures;
}

}  // namespace hyper::simulate
