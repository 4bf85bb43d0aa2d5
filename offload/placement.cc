#include "offload/placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "offload/liveness.h"
#include "offload/packing.h"

namespace hyper::offload {
namespace {

using lower::Access;
using lower::LoweredFunction;
using lower::LoweredModule;
using lower::LoweredOp;
using lower::Root;
using lower::Storage;

constexpr int kStorageClasses = static_cast<int>(Storage::kTemporary) + 1;

int64_t AlignUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool IsStep(const LoweredFunction& function) {
  return function.name == "step_first" || function.name == "step_next";
}

class Placer {
 public:
  Placer(LoweredModule module, const PlacementOptions& options) : options_(options) {
    placed_.module = std::move(module);
    guard_ = AlignUp(options.guard_bytes);
  }

  Result<PlacedModule> Run() {
    HYPER_RETURN_IF_ERROR(FindUsedRoots());
    PromoteResults();
    HYPER_RETURN_IF_ERROR(CheckTemporariesAreLocal());
    HYPER_RETURN_IF_ERROR(IndexParameters());
    placed_.offsets.assign(roots().size(), -1);
    for (int storage = 0; storage < kStorageClasses; ++storage) {
      const int64_t begin = end_;
      HYPER_RETURN_IF_ERROR(PlaceClass(static_cast<Storage>(storage)));
      placed_.regions.push_back({static_cast<Storage>(storage), begin, end_});
    }
    placed_.arena_bytes = end_;
    HYPER_RETURN_IF_ERROR(MakeBuckets());
    return std::move(placed_);
  }

 private:
  std::vector<Root>& roots() { return placed_.module.roots; }
  const Root& root(int index) { return roots()[static_cast<size_t>(index)]; }
  // Bytes that a root takes, alignment and guard included.
  int64_t Extent(const Root& root) const { return AlignUp(RootBytes(root)) + guard_; }

  Status FindUsedRoots() {
    used_.assign(roots().size(), false);
    const auto mark = [&](const lower::Operand& operand, const std::string& where) {
      if (!operand.root.valid() || static_cast<size_t>(operand.root.index) >= used_.size()) {
        return Internal(fmt::format("placement: @{} names root {} of {}", where, operand.root.index,
                                    used_.size()));
      }
      used_[static_cast<size_t>(operand.root.index)] = true;
      return Status::Ok();
    };
    for (const LoweredFunction& function : placed_.module.functions) {
      for (const LoweredOp& op : function.ops) {
        for (const lower::Operand& operand : op.operands) {
          HYPER_RETURN_IF_ERROR(mark(operand, function.name));
        }
      }
      for (const LoweredFunction::Named& result : function.results) {
        HYPER_RETURN_IF_ERROR(mark(result.operand, function.name));
      }
    }
    return Status::Ok();
  }

  // What a function returns is read after it, so it must not lie in the shared temporary region.
  void PromoteResults() {
    for (const LoweredFunction& function : placed_.module.functions) {
      for (const LoweredFunction::Named& result : function.results) {
        Root& root = roots()[static_cast<size_t>(result.operand.root.index)];
        if (root.storage == Storage::kTemporary) root.storage = Storage::kResult;
      }
    }
  }

  Status CheckTemporariesAreLocal() {
    std::vector<int> owner(roots().size(), -1);
    for (int f = 0; f < static_cast<int>(placed_.module.functions.size()); ++f) {
      const LoweredFunction& function = placed_.module.functions[static_cast<size_t>(f)];
      for (const Lifetime& lifetime : TemporaryLifetimes(placed_.module, function)) {
        int& first_user = owner[static_cast<size_t>(lifetime.root.index)];
        if (first_user >= 0 && first_user != f) {
          return Internal(fmt::format(
              "placement: temporary '{}' is used by @{} and @{}", root(lifetime.root.index).name,
              placed_.module.functions[static_cast<size_t>(first_user)].name, function.name));
        }
        first_user = f;
      }
    }
    return Status::Ok();
  }

  // Fixes the layout that parameters, gradients and each optimizer slot share: offset of every
  // parameter from the start of its range.
  Status IndexParameters() {
    for (int index = 0; index < static_cast<int>(roots().size()); ++index) {
      const Root& r = root(index);
      if (!used_[static_cast<size_t>(index)] || r.storage > Storage::kOptimizer) continue;
      auto& members = members_[{r.storage, r.slot}];
      if (r.storage == Storage::kOptimizer && members.empty()) slots_.push_back(r.slot);
      if (!members.emplace(r.name, index).second) {
        return Internal(fmt::format("placement: two roots for '{}' {}", r.name, r.slot));
      }
    }
    std::set<std::string> seen;
    for (const std::string& name : placed_.module.parameter_order) {
      if (!seen.insert(name).second) {
        return Internal(fmt::format("placement: '{}' is twice in the parameter order", name));
      }
      order_.push_back(name);
    }
    std::vector<std::string> plain;  // parameters without a gradient lie behind all that have one
    for (int index = 0; index < static_cast<int>(roots().size()); ++index) {
      const Root& r = root(index);
      if (!used_[static_cast<size_t>(index)] || r.storage > Storage::kOptimizer) continue;
      if (seen.contains(r.name)) continue;
      if (r.storage != Storage::kParameter) {
        return Internal(
            fmt::format("placement: '{}' has a gradient or an optimizer state but no "
                        "place in the parameter order",
                        r.name));
      }
      plain.push_back(r.name);
    }
    order_.insert(order_.end(), plain.begin(), plain.end());
    return LayOutParameters();
  }

  Status LayOutParameters() {
    int64_t offset = 0;
    for (const std::string& name : order_) {
      const Root* first = nullptr;
      for (const auto& [key, members] : members_) {
        const auto found = members.find(name);
        if (found == members.end()) continue;
        const Root& r = root(found->second);
        if (first == nullptr) first = &r;
        if (r.elements != first->elements || r.dtype != first->dtype) {
          return Internal(fmt::format(
              "placement: '{}' has {} elements of {} in one range and {} of {} in another", name,
              first->elements, ir::DTypeName(first->dtype), r.elements, ir::DTypeName(r.dtype)));
        }
      }
      if (first == nullptr) continue;  // in the order but used nowhere
      parameter_offsets_[name] = offset;
      offset += Extent(*first);
    }
    return Status::Ok();
  }

  Status PlaceClass(Storage storage) {
    if (storage == Storage::kOptimizer) {
      for (const std::string& slot : slots_) PlaceCongruent(members_[{storage, slot}]);
      return Status::Ok();
    }
    if (storage < Storage::kOptimizer) {
      PlaceCongruent(members_[{storage, ""}]);
      return Status::Ok();
    }
    if (storage == Storage::kTemporary) {
      PlaceTemporaries();
      return Status::Ok();
    }
    for (size_t index = 0; index < roots().size(); ++index) {
      if (!used_[index] || roots()[index].storage != storage) continue;
      placed_.offsets[index] = end_;
      end_ += Extent(roots()[index]);
    }
    return Status::Ok();
  }

  void PlaceCongruent(const std::map<std::string, int>& members) {
    const int64_t begin = end_;
    for (const auto& [name, index] : members) {
      const int64_t offset = begin + parameter_offsets_.at(name);
      placed_.offsets[static_cast<size_t>(index)] = offset;
      end_ = std::max(end_, offset + Extent(root(index)));
    }
  }

  void PlaceTemporaries() {
    int64_t region = 0;
    for (const LoweredFunction& function : placed_.module.functions) {
      const std::vector<Lifetime> lifetimes = TemporaryLifetimes(placed_.module, function);
      std::vector<Block> blocks;
      blocks.reserve(lifetimes.size());
      for (const Lifetime& lifetime : lifetimes) {
        blocks.push_back({lifetime.first, lifetime.last, Extent(root(lifetime.root.index))});
      }
      const Packing packing = Pack(blocks);
      FunctionPlan plan{.name = function.name, .live_lower_bound = LiveLowerBound(lifetimes)};
      for (size_t i = 0; i < lifetimes.size(); ++i) {
        placed_.offsets[static_cast<size_t>(lifetimes[i].root.index)] = end_ + packing.offsets[i];
        // What is really used: padding and guard behind the highest root are not.
        plan.temporary_peak =
            std::max(plan.temporary_peak, packing.offsets[i] + lifetimes[i].bytes);
      }
      region = std::max(region, packing.peak);
      placed_.functions.push_back(std::move(plan));
    }
    end_ += region;
  }

  Status MakeBuckets() {
    const auto& gradients = members_[{Storage::kGradient, ""}];
    bool open = false;
    for (const std::string& name : placed_.module.parameter_order) {
      const auto found = gradients.find(name);
      if (found == gradients.end()) {
        open = false;
        continue;
      }
      const Root& gradient = root(found->second);
      const int64_t begin = placed_.offsets[static_cast<size_t>(found->second)];
      const int64_t end = begin + RootBytes(gradient);
      if (open) {
        GradientBucket& last = placed_.buckets.back();
        open = last.dtype == gradient.dtype && end - last.begin <= options_.bucket_bytes;
      }
      if (!open) placed_.buckets.push_back({begin, end, gradient.dtype, {}});
      placed_.buckets.back().end = end;
      placed_.buckets.back().parameters.push_back(name);
      open = true;
    }
    bool sorted = false;
    for (LoweredFunction& function : placed_.module.functions) {
      if (!IsStep(function)) continue;
      std::erase_if(function.ops, [](const LoweredOp& op) {
        return std::holds_alternative<lower::MarkerKernel>(op.kernel);
      });
      if (!sorted) HYPER_RETURN_IF_ERROR(SortBuckets(function));
      sorted = true;
      HYPER_RETURN_IF_ERROR(InsertMarkers(function));
    }
    return Status::Ok();
  }

  // Index of the last op of `function` that writes each root, or -1.
  std::vector<int> LastWrites(const LoweredFunction& function) {
    std::vector<int> written(roots().size(), -1);
    for (int op = 0; op < static_cast<int>(function.ops.size()); ++op) {
      for (const lower::Operand& operand : function.ops[static_cast<size_t>(op)].operands) {
        if (operand.access == Access::kRead) continue;
        written[static_cast<size_t>(operand.root.index)] = op;
      }
    }
    return written;
  }

  // Index of the last op of `function` that writes a gradient of the bucket.
  Result<int> ReadyAt(const LoweredFunction& function, const std::vector<int>& last_writes,
                      const GradientBucket& bucket) {
    const auto& gradients = members_[{Storage::kGradient, ""}];
    int ready = -1;
    for (const std::string& name : bucket.parameters) {
      const int written = last_writes[static_cast<size_t>(gradients.at(name))];
      if (written < 0) {
        return Internal(
            fmt::format("placement: @{} never writes the gradient of '{}'", function.name, name));
      }
      ready = std::max(ready, written);
    }
    return ready;
  }

  Status SortBuckets(const LoweredFunction& function) {
    const std::vector<int> last_writes = LastWrites(function);
    std::vector<std::pair<int, GradientBucket>> keyed;
    for (GradientBucket& bucket : placed_.buckets) {
      HYPER_ASSIGN_OR_RETURN(const int ready, ReadyAt(function, last_writes, bucket));
      keyed.emplace_back(ready, std::move(bucket));
    }
    std::stable_sort(keyed.begin(), keyed.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    placed_.buckets.clear();
    for (auto& [ready, bucket] : keyed) placed_.buckets.push_back(std::move(bucket));
    return Status::Ok();
  }

  Status InsertMarkers(LoweredFunction& function) {
    const std::vector<int> last_writes = LastWrites(function);
    std::map<int, std::vector<const GradientBucket*>> behind;  // op -> buckets complete after it
    for (const GradientBucket& bucket : placed_.buckets) {
      HYPER_ASSIGN_OR_RETURN(const int ready, ReadyAt(function, last_writes, bucket));
      behind[ready].push_back(&bucket);
    }
    std::vector<LoweredOp> ops;
    ops.reserve(function.ops.size() + placed_.buckets.size());
    for (int op = 0; op < static_cast<int>(function.ops.size()); ++op) {
      ops.push_back(std::move(function.ops[static_cast<size_t>(op)]));
      const auto found = behind.find(op);
      if (found == behind.end()) continue;
      for (const GradientBucket* bucket : found->second) {
        LoweredOp marker;
        marker.kernel = lower::MarkerKernel{bucket->parameters};
        marker.role = ir::Role::kWeightGradient;
        ops.push_back(std::move(marker));
      }
    }
    function.ops = std::move(ops);
    return Status::Ok();
  }

  const PlacementOptions& options_;
  PlacedModule placed_;
  int64_t guard_ = 0;
  int64_t end_ = 0;  // of the arena so far
  std::vector<bool> used_;
  // (class, optimizer slot) -> parameter name -> root
  std::map<std::pair<Storage, std::string>, std::map<std::string, int>> members_;
  std::vector<std::string> slots_;  // optimizer slots in order of appearance
  std::vector<std::string> order_;
  std::map<std::string, int64_t> parameter_offsets_;
};

}  // namespace

Result<PlacedModule> Place(lower::LoweredModule module, const PlacementOptions& options) {
  if (options.guard_bytes < 0) {
    return InvalidArgument(
        fmt::format("guard bytes must be 0 or more, got {}", options.guard_bytes));
  }
  if (options.bucket_bytes <= 0) {
    return InvalidArgument(
        fmt::format("the bucket size must be above 0 bytes, got {}", options.bucket_bytes));
  }
  return Placer(std::move(module), options).Run();
}

}  // namespace hyper::offload
