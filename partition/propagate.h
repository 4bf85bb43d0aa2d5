// From a few given layouts to one for every value of a function, and one assignment for every node.
//
// First, hints: cuts spread from values with a layout to those without, through the factors of the
// nodes between them, until nothing changes. What is given never changes; of contradicting hints
// the one on the larger tensor stands. Then, in program order, every node gets the assignment that
// costs least: moving its operands from where they lie, the work itself, and moving the results to
// their hints. Values are made where their producer's assignment puts them; shares of a value are
// combined where it is read, so that the collective that combines them is the one the reader needs.
//
// Which values get which layout depends on sizes and names only: the same function gives the same
// plan.
// Thread safety: pure functions.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "partition/factors.h"
#include "partition/redistribute.h"

namespace hyper::partition {

// A layout that the strategy names.
struct Seed {
  ir::ValueId value;
  Layout layout;
  std::string why;  // "shard[2] of the strategy"
};

struct CostModel {
  LinkCost link;
  double flops_per_second = 5e10;
  double bytes_per_second = 1e10;  // of memory
};

struct FunctionLayouts {
  // By value index: where the value is made (argument or producer). Empty dims for removed values.
  std::vector<Layout> made;
  // Where that layout came from: a seed's `why`, "follows through dot 'node'", "no cut reaches it".
  std::vector<std::string> why;
  // By node index.
  std::vector<Assignment> assignments;
};

// kInvalidArgument when a seed does not fit its value; the message names the value.
Result<FunctionLayouts> Propagate(const Mesh& mesh, const ir::Function& function,
                                  std::span<const Seed> seeds, const CostModel& cost = {});

// One collective that the layouts ask for.
struct PlannedStep {
  ir::ValueId value;     // what is moved
  ir::NodeId asked_for;  // by which node; invalid: by a result of the function
  Step step;
};
// In program order. A value that was moved to a layout once is not moved again: the second reader
// takes what is there. Results become whole unless an argument whose storage they reuse is cut.
Result<std::vector<PlannedStep>> PlanSteps(const Mesh& mesh, const ir::Function& function,
                                           const FunctionLayouts& layouts,
                                           const CostModel& cost = {});

}  // namespace hyper::partition
