// A fused group as a set of nodes over one iteration space. The space is a list of atoms: factors
// of extents, split where two members see the same elements in unequal shapes ([b*t, c] next to
// [b, t, c] gives atoms b, t, c). Each value knows the atoms behind each of its dims, so that
// reshape, transpose and broadcast between members cost nothing.
// Thread safety: value types; BuildGroup is a pure function.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "lower/analysis.h"

namespace hyper::lower {

// A node's part in a group. A terminal reduction has two: partial sums (finish = false) and, in
// another group, their combination (finish = true).
struct Member {
  ir::NodeId node;
  bool finish = false;
  auto operator<=>(const Member&) const = default;
};

using AtomList = std::vector<int>;
using ValueAtoms = std::vector<AtomList>;  // per dim, outermost first; empty for extent 1

struct Group {
  std::vector<Member> members;                 // in program order
  std::vector<int64_t> extents;                // per atom, in the group's order
  std::map<ir::ValueId, ValueAtoms> produced;  // results of members
  std::map<std::pair<ir::NodeId, int>, ValueAtoms>
      read;                    // operands from outside, per (node, input)
  std::vector<int> row_atoms;  // reduced per row; see has_row
  bool has_row = false;
  bool has_terminal = false;
  bool has_finish = false;
  bool joined = false;  // "terminal" reductions are complete here, per column; row_atoms are theirs
  AtomList all() const;
};

// Fails with the reason why the members do not share a space.
Result<Group> BuildGroup(const Analysis& analysis, std::vector<Member> members);

// Chunks of rows that a reduction over rows is cut into: enough for many threads, partial sums
// below 1/16 of what is read. Depends on shapes only.
int64_t Chunks(int64_t elements, int64_t rows);

// Both stages of the reductions over rows in `first` as one group that walks all rows per column:
// no partial sums. `finish`: the group that combines them. Fails with the reason where two stages
// are needed or better.
Result<Group> JoinStages(const Analysis& analysis, const Group& first, const Group& finish);

// Atoms of the value behind the view nodes, from the atoms of the base; used to place the side
// inputs of recomputed nodes. Atoms must already be fine enough.
std::vector<int> Flatten(const ValueAtoms& atoms);

}  // namespace hyper::lower
