// The sharding rule of one node on one mesh: which axes cut each of its factors (ir/op_def.h), and
// the layouts of operands and results that follow. The one line of a rule gives propagation, the
// collectives that are needed, the errors about extents and the test "sharded equals unsharded".
// Thread safety: values; const access from several threads is safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/op_def.h"
#include "partition/layout.h"

namespace hyper::partition {

// Axes of each factor that is cut, outer first; a factor without an entry is whole.
using Assignment = std::map<char, std::vector<AxisId>>;

class NodeFactors {
 public:
  // An op whose record says that it cannot be sharded has only factors that stay whole.
  NodeFactors(const Mesh& mesh, const ir::Function& function, const ir::Node& node);

  int inputs() const { return static_cast<int>(rule_.inputs.size()); }
  int outputs() const { return static_cast<int>(rule_.outputs.size()); }
  // All factors in the order in which they first appear, inputs before outputs.
  const std::string& letters() const { return letters_; }
  const std::string& input(int i) const { return rule_.inputs[static_cast<size_t>(i)]; }
  const std::string& output(int i) const { return rule_.outputs[static_cast<size_t>(i)]; }
  // The factor disappears: ranks that hold parts of it have shares of the result.
  bool IsReduced(char letter) const;
  // Extent that the parts of a factor have to divide: the greatest common divisor of its extents in
  // all operands and results (those of a merged dim differ). 1 where the op needs it whole.
  int64_t Divisor(char letter) const;
  // `axes` may cut the factor beside what `assignment` cuts already: an axis serves one factor.
  bool CanCut(const Assignment& assignment, char letter, const std::vector<AxisId>& axes) const;

  // Layouts that the op needs, and makes, under an assignment that CanCut allows.
  Layout InputLayout(const Assignment& assignment, int input) const;
  Layout OutputLayout(const Assignment& assignment, int output) const;

 private:
  Layout LayoutOf(const Assignment& assignment, const std::string& letters) const;

  const Mesh* mesh_;
  ir::ShardingFactors rule_;
  std::string letters_;
  std::map<char, int64_t> divisors_;
};

// "sum", "max", ... as records write it; another name is our bug.
Partial PartialFromName(std::string_view name);

}  // namespace hyper::partition
