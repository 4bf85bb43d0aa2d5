// Test mode of the executor: checks that kernels touch exactly the bytes the plan gives them.
// Temporary bytes that no live operand owns hold a pattern. After every instruction the pattern
// must still stand outside the live ranges and the instruction's own outputs; then what has died is
// painted again, so that a read of dead data shows in the numbers (the pattern is a NaN).
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string>
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

// One workspace of an instruction, over all runs.
struct WorkspaceUse {
  std::string source;   // of the instruction
  int64_t begin = 0;    // in the temporary region
  int64_t cap = 0;      // bytes planned
  int64_t written = 0;  // end of what was really written, from `begin`
};

// Ends of what was touched in the temporary region, from its begin.
struct PoisonMarks {
  int64_t written = 0;             // of bytes really written, workspaces included
  int64_t written_by_results = 0;  // the same outside workspaces
  int64_t planned_touch = 0;       // results really written, workspaces by their cap: how much of
                                   // one a kernel uses depends on the number of threads
  std::vector<WorkspaceUse> workspaces;
};

class PoisonGuard {
 public:
  // Lifetimes are derived from the operand ranges alone, without planner code.
  PoisonGuard(const program::Program& program, const program::SubProgram& sub, char* arena);

  void Begin();                   // paints the whole temporary region
  Status After(int instruction);  // kInternal naming the instruction and the first wrong byte
  // Over all runs. A byte that was written as 0xFF does not show.
  const PoisonMarks& marks() const { return marks_; }

 private:
  // End of what does not hold the pattern within [begin, end), or begin.
  int64_t WrittenEnd(int64_t begin, int64_t end) const;

  const program::SubProgram& sub_;
  char* region_ = nullptr;
  int64_t bytes_ = 0;
  std::vector<RangeSet> untouched_;     // per instruction: must still hold the pattern after it
  std::vector<RangeSet> dead_after_;    // per instruction: painted after it
  std::vector<RangeSet> no_workspace_;  // per instruction: outside its workspaces
  std::vector<std::vector<size_t>> workspaces_;  // per instruction: in marks_.workspaces
  PoisonMarks marks_;
};

}  // namespace hyper::runtime
