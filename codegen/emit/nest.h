// What the loop-nest templates know about a fused group: which axis of the group's iteration
// space every dim of every body value runs along, which loops remain after collapsing, and how far
// each access moves per loop step.
// Thread safety: value types, pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "lower/lowered.h"

namespace hyper::codegen {

// Axes as a bit set; a group has at most 32.
using AxisSet = uint32_t;

struct Loop {
  int64_t extent = 1;
  AxisSet axes = 0;
  std::vector<int64_t> strides;  // per stream
};

// One stream per operand (element offsets) and one per iota/random node (element index).
struct Nest {
  const ir::Function* body = nullptr;
  const std::vector<lower::Operand>* operands = nullptr;
  ir::Dims space;
  std::vector<std::vector<int>> axes_of;  // per body value: axis of each dim
  std::vector<AxisSet> set_of;            // per body value: union of axes_of
  std::vector<AxisSet> depends;           // per body value: axes that its content varies along
  std::vector<int> argument_of;           // per body value: operand index, -1 for computed ones
  std::vector<int> stream_of_node;        // per body value made by iota/random: its stream, or -1
  int streams = 0;
  std::vector<ir::Dims> stream_strides;  // [stream][axis]

  int reads() const { return static_cast<int>(body->arguments().size()); }
  const lower::Operand& operand(int i) const { return (*operands)[static_cast<size_t>(i)]; }
  // Strides of a result operand along the axes of the value written; `partial`: its first dim
  // counts chunks.
  bool IsPartial(int result) const;
};

Result<Nest> AnalyzeNest(const ir::Function& body, const std::vector<lower::Operand>& operands);

// Axes sorted from far to near strides of the largest accesses.
std::vector<int> AxesByStride(const Nest& nest);

// Loops over `axes` (in this order), neighbours merged where every stream allows it. Extents of 1
// vanish.
std::vector<Loop> MakeLoops(const Nest& nest, const std::vector<int>& axes);

// The text of "i0 * s0 + i1 * s1", or "0".
std::string OffsetText(const std::vector<Loop>& loops, const std::vector<std::string>& indices,
                       int stream);

}  // namespace hyper::codegen
