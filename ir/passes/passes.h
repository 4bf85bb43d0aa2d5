// The IR passes, one per file, and what they share.
// Thread safety: none.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ir/pass.h"

namespace hyper::ir {

Pass CanonicalizePass();
Pass CsePass();
Pass DcePass();
Pass FuseMapConstantsPass();
Pass RematerializeCheapPass();

// Collects "use `to` instead of `from`" during a walk and applies all at once.
class Replacements {
 public:
  explicit Replacements(const Function& f) : to_(static_cast<size_t>(f.value_count())) {}
  void Add(ValueId from, ValueId to);
  // Follows chains of replacements.
  ValueId Resolve(ValueId v) const;
  bool empty() const { return count_ == 0; }
  // Rewrites the inputs of every node and the results.
  void Apply(Function& f) const;

 private:
  std::vector<ValueId> to_;  // by value index; invalid: not replaced
  int count_ = 0;
};

// used[v]: value v is a result of the function.
std::vector<bool> ResultValues(const Function& f);

// The one value that fills `v`, as a scalar tensor, when that is known at compile time: a constant
// whose elements are all equal, also behind broadcasts, reshapes and transposes.
std::optional<HostTensor> SplatValue(const Function& f, ValueId v);

}  // namespace hyper::ir
