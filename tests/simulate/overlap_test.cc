#include "simulate/overlap.h"

#include <vector>

#include <gtest/gtest.h>

namespace hyper::simulate {
namespace {

OverlapFigures Measure(const std::vector<ReduceTimes>& reduces, int64_t backward_end) {
  return MeasureOverlap(reduces, backward_end);
}

TEST(Overlap, NoReducesNothingToHide) {
  const OverlapFigures figures = Measure({}, 100);
  EXPECT_EQ(figures.reduce, 0);
  EXPECT_EQ(figures.coverable, 0);
  EXPECT_EQ(figures.exposed, 0);
}

TEST(Overlap, AReduceThatBeginsWhenReady) {
  const OverlapFigures figures = Measure({{10, 10, 40}, {60, 60, 110}}, 100);
  EXPECT_EQ(figures.reduce, 80);
  EXPECT_EQ(figures.hidden, 30 + 40);
  EXPECT_EQ(figures.coverable, 30 + 40);
  EXPECT_EQ(figures.exposed, 10);
}

// The bound does not care when reduces were queued, only when they could have begun.
TEST(Overlap, AReduceThatWaitsWithoutNeed) {
  const OverlapFigures late = Measure({{10, 100, 130}, {60, 130, 180}}, 100);
  EXPECT_EQ(late.hidden, 0);
  EXPECT_EQ(late.coverable, 30 + 40);
  EXPECT_EQ(late.exposed, 80);
}

TEST(Overlap, TheLaneIsSerial) {
  // Ready at 0 and 10, 50 each: the second can begin at 50 at best.
  const OverlapFigures figures = Measure({{0, 0, 50}, {10, 50, 100}}, 80);
  EXPECT_EQ(figures.coverable, 50 + 30);
  EXPECT_EQ(figures.hidden, 80);
}

// A list whose first bucket is complete last keeps the lane idle; another order would not.
TEST(Overlap, TheBoundIsThatOfTheBestOrder) {
  const OverlapFigures figures = Measure({{80, 80, 110}, {0, 110, 160}}, 100);
  EXPECT_EQ(figures.hidden, 20);
  EXPECT_EQ(figures.coverable, 50 + 20);
}

TEST(Overlap, ReadyAfterBackwardCannotBeCovered) {
  const OverlapFigures figures = Measure({{100, 100, 150}}, 100);
  EXPECT_EQ(figures.coverable, 0);
  EXPECT_EQ(figures.exposed, 50);
}

}  // namespace
}  // namespace hyper::simulate
