#include "offload/liveness.h"

#include <algorithm>

namespace hyper::offload {

int64_t RootBytes(const lower::Root& root) { return root.elements * ir::DTypeBytes(root.dtype); }

std::vector<Lifetime> TemporaryLifetimes(const lower::LoweredModule& module,
                                         const lower::LoweredFunction& function) {
  std::vector<Lifetime> lifetimes;
  std::vector<int> place(module.roots.size(), -1);  // root -> index in lifetimes
  for (int op = 0; op < static_cast<int>(function.ops.size()); ++op) {
    for (const lower::Operand& operand : function.ops[static_cast<size_t>(op)].operands) {
      const size_t index = static_cast<size_t>(operand.root.index);
      const lower::Root& root = module.roots[index];
      if (root.storage != lower::Storage::kTemporary) continue;
      if (place[index] < 0) {
        place[index] = static_cast<int>(lifetimes.size());
        lifetimes.push_back({operand.root, op, op, RootBytes(root)});
      }
      lifetimes[static_cast<size_t>(place[index])].last = op;
    }
  }
  return lifetimes;
}

int64_t LiveLowerBound(std::span<const Lifetime> lifetimes) {
  int end = 0;
  for (const Lifetime& lifetime : lifetimes) end = std::max(end, lifetime.last + 1);
  std::vector<int64_t> change(static_cast<size_t>(end) + 1, 0);
  for (const Lifetime& lifetime : lifetimes) {
    change[static_cast<size_t>(lifetime.first)] += lifetime.bytes;
    change[static_cast<size_t>(lifetime.last) + 1] -= lifetime.bytes;
  }
  int64_t live = 0;
  int64_t largest = 0;
  for (const int64_t delta : change) {
    live += delta;
    largest = std::max(largest, live);
  }
  return largest;
}

}  // namespace hyper::offload
