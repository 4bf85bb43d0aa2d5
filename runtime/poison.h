// Test mode of the executor: checks that kernels touch exactly the bytes the plan gives them.
// Temporary bytes that no live operand owns hold a pattern. After every instruction the pattern
// must still stand outside the live ranges and the instruction's own outputs; then what has died is
// painted again, so that a read of dead data shows in the numbers (the pattern is a NaN).
// Thread safety: none.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "codegen/program.pb.h"

namespace hyper::runtime {

// Sorted, disjoint, half-open byte ranges.
class RangeSet {
 public:
  struct Range {
    int64_t begin;
    int64_t end;
  };
  void Add(int64_t begin, int64_t end);
  void Subtract(int64_t begin, int64_t end);
  // What of [0, bytes) is not in the set.
  RangeSet Complement(int64_t bytes) const;
  const std::vector<Range>& ranges() const { return ranges_; }

 private:
  std::vector<Range> ranges_;
};

class PoisonGuard {
 public:
  // Lifetimes are derived from the operand ranges alone, without planner code.
  PoisonGuard(const program::Program& program, const program::SubProgram& sub, char* arena);

  void Begin();                   // paints the whole temporary region
  Status After(int instruction);  // kInternal naming the instruction and the first wrong byte
  // Largest end of what was touched, relative to the region's begin, over all runs: bytes really
  // written, and workspaces by their size, since how much of one a kernel uses depends on the
  // number of threads.
  int64_t high_water() const { return high_water_; }

 private:
  const program::SubProgram& sub_;
  char* region_ = nullptr;
  int64_t bytes_ = 0;
  std::vector<RangeSet> untouched_;     // per instruction: must still hold the pattern after it
  std::vector<RangeSet> dead_after_;    // per instruction: painted after it
  std::vector<int64_t> workspace_end_;  // per instruction, 0: none
  int64_t high_water_ = 0;
};

}  // namespace hyper::runtime
